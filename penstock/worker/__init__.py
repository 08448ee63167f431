"""The embeddable worker: documents to text (and on to fields and vectors) from any Python program.

It works on the same store, by the same queue and the same processing path as the flows do; no
Prefect is needed.
"""

from penstock.worker.attachments import Attachment
from penstock.worker.database import Database
from penstock.worker.extraction_worker import ExtractionWorker
from penstock.worker.jobs import Job
from penstock.worker.queue import QueueManager
from penstock.worker.signals import register_signal_handlers

__all__ = [
    "Attachment",
    "Database",
    "ExtractionWorker",
    "Job",
    "QueueManager",
    "register_signal_handlers",
]
