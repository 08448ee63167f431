"""Maintenance: deletes old rows and unneeded raw bytes, and shrinks the database."""
