"""Runs: one pass over one source, from listing to exact counts."""
