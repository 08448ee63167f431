"""Prefect tasks: thin wrappers that add retries, cache keys, names and tags to domain functions."""
