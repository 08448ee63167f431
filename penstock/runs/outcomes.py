"""The documents of a run, page by page: those with a status, a change, an error, or some words."""

from dataclasses import dataclass

import sqlalchemy as sa

from penstock.events.log import any_holds
from penstock.runs.report import DocumentLine, select_documents
from penstock.runs.vocabulary import Change, DocumentStatus
from penstock.store.columns import storable
from penstock.store.database import Tx
from penstock.store.schema import run_documents


@dataclass(frozen=True, slots=True)
class OutcomeFilter:
    """Which documents of a run."""

    run_id: int
    status: DocumentStatus | None = None
    change: Change | None = None
    error_class: str | None = None
    text: str | None = None
    """Somewhere in the external id, the address or the reason; case does not matter."""
    after: str | None = None
    """Only documents that come later: the external id with which the page before ended."""

    def conditions(self, tx: Tx) -> list[sa.ColumnElement[bool]]:
        c = run_documents.c
        found = [
            column == value
            for column, value in (
                (c.status, self.status),
                (c.change, self.change),
                (c.error_class, self.error_class),
            )
            if value is not None
        ]
        if self.text:
            found.append(any_holds(tx, (c.external_id, c.url, c.reason), storable(self.text)))
        if self.after is not None:
            found.append(c.external_id > self.after)
        return found


def page_documents(tx: Tx, wanted: OutcomeFilter, limit: int) -> list[DocumentLine]:
    """By external id, which is the order of the primary key: a page costs what it shows."""
    page = select_documents(wanted.run_id).where(*wanted.conditions(tx))
    rows = tx.execute(page.order_by(run_documents.c.external_id).limit(limit))
    return [DocumentLine(**row._mapping) for row in rows]
