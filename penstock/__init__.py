"""Penstock: from piles of pages and files to structured, searchable records."""

__version__ = "0.1.0"
