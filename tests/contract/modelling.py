"""Runs whose documents are extracted by models, at a stand-in on loopback."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from penstock.app import retry_rules
from penstock.documents import Stage
from penstock.queue.items import ItemStatus
from penstock.queue.queue import WorkQueue
from penstock.runs.costs import Spending, tenant_spending
from penstock.store.database import Database
from penstock.store.schema import model_calls, runs, work_items
from penstock.testing import GroqServer
from tests.contract.ingestion import Workplace
from tests.factories import TENANT

PRIMARY = "openai/gpt-oss-20b"
FALLBACK = "openai/gpt-oss-120b"
KEY = "gsk_very-secret-key"


def make_answer(**fields: Any) -> dict[str, Any]:
    """A good answer to the profile `document`, but for what is said otherwise."""
    return {
        # Every text of `make_text` names it.
        "title": "Ulm",
        "authors": [],
        "date": "1843",
        "summary": "About mills.",
        "topics": ["mills"],
        "confidence": 0.9,
        **fields,
    }


class ModelWorkplace(Workplace):
    """A workplace whose extractor is the one that the settings ask for."""

    def __init__(self, database: Database, home: Path, server: GroqServer, **settings: Any) -> None:
        super().__init__(database, home, **{"base_url": server.base_url, **settings})
        self.server = server
        del self.app.extractor

    def keep_delays(self) -> None:
        """Wait between attempts as long as the settings say."""
        settings = self.app.settings
        self.app.queue = WorkQueue(retry_rules(settings), settings.lease_seconds)

    def run_id(self) -> int:
        """Of the newest run."""
        with self.database.read() as tx:
            return int(tx.execute(sa.select(sa.func.max(runs.c.id))).scalar_one())

    def extraction(self, name: str) -> sa.Row[Any]:
        """A document's newest extraction item."""
        return self.items(Stage.EXTRACT, name)[-1]

    def calls(self) -> list[sa.Row[Any]]:
        """Everything that was asked, as it was written down."""
        with self.database.read() as tx:
            return list(tx.execute(sa.select(model_calls).order_by(model_calls.c.id)))

    def dead_letters(self) -> int:
        query = sa.select(sa.func.count()).where(work_items.c.status == ItemStatus.FAILED)
        with self.database.read() as tx:
            return int(tx.execute(query).scalar_one())

    def spending(self) -> Spending:
        with self.database.read() as tx:
            return tenant_spending(tx, TENANT)
