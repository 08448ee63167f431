"""Bringing old nodes up to date: which ones, what it will cost, and a bounded batch at a time."""
