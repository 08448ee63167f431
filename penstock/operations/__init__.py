"""What operators do with nodes and jobs: look, requeue, retry, cancel, replay, refresh, delete."""
