"""Filling a profile's fields from a text."""
