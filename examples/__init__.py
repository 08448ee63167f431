"""Flows of your own, made of the tasks in `tasks`."""
