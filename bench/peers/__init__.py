"""Other queues at the same no-op jobs, each run by the Python of the environment it needs."""
