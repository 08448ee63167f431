"""Forgetting what is old, deleting what nobody needs, and giving back the room."""
