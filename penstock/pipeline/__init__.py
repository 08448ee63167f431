"""The one processing path: text → extract → embed over a claimed batch.

Flows, workers, backfills and the embeddable worker all use it.
"""
