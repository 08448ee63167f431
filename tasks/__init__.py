"""Prefect tasks: thin wrappers that add retries, cache keys, names and tags to domain functions."""

import blocks  # noqa: F401 - it has Prefect find the server of this machine
