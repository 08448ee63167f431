"""Starts, finds and stops the servers that Penstock uses on one machine."""
