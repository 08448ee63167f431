"""The cached results of tasks, which Prefect keeps for ever unless somebody removes them."""

import time
from datetime import timedelta

from prefect.settings import PREFECT_LOCAL_STORAGE_PATH

# Long enough to serve a run that is taken up again; the store keeps extractions for ever.
KEPT = timedelta(days=1)
PREFIX = "penstock-"


def forget_old_results() -> int:
    """Delete our results that no task run would use any more; how many."""
    oldest = time.time() - KEPT.total_seconds()
    removed = 0
    for path in PREFECT_LOCAL_STORAGE_PATH.value().glob(f"{PREFIX}*"):
        if path.is_file() and path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
            removed += 1
    return removed
