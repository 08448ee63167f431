"""Discover documents, fetch them politely and keep their raw bytes."""
