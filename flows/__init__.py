"""Flows: order and concurrency only. The work is in `penstock`, its retries are in `tasks`."""

import blocks  # noqa: F401 - it has Prefect find the server of this machine
