"""Intake: nodes that programs bring, one at a time or in batches, recorded with their work."""
