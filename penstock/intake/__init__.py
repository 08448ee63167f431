"""Intake: nodes that programs send, one at a time or in batches, recorded with their work."""
