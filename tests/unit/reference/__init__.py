"""The reference pages."""
