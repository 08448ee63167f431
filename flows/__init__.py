"""Flows: order and concurrency only. What they do is in `penstock`, how it is retried in `tasks`."""
