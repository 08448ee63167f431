"""The embeddable worker: documents to text (and on to fields and vectors) from any Python program.

It works on the same store, by the same queue and the same processing path as the flows do; no
Prefect is needed.
"""

from penstock.worker.jobs import Job, QueueManager
from penstock.worker.library import Attachment, Database
from penstock.worker.worker import ExtractionWorker, register_signal_handlers

# Its name in the library that this worker has grown out of.
ResearchDatabase = Database

__all__ = [
    "Attachment",
    "Database",
    "ExtractionWorker",
    "Job",
    "QueueManager",
    "ResearchDatabase",
    "register_signal_handlers",
]
