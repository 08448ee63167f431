"""The one processing path: text → extract → embed over a claimed batch.

Flows, drains, backfills and the embeddable worker all go through it.
"""
