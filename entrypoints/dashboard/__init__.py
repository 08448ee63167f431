"""Pages to look at: runs, live logs, documents, search, queues and cost."""
