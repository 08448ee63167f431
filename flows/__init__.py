"""Flows: order and concurrency only. The work is in `penstock`, its retries are in `tasks`."""
