"""Tenants with all that pages can show: runs, documents, jobs, dead letters, costs."""

import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from penstock.crawl.files import FolderListing
from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.events import Event, record
from penstock.operations.nodes import refresh_node
from penstock.queue.items import ItemStatus
from penstock.runs.lifecycle import open_run
from penstock.runs.run import Run, SourceSpec
from penstock.store.database import Database
from penstock.store.schema import events, extractions, model_calls, nodes, work_items
from tests.contract.api.service import RESUME
from tests.contract.ingestion import Workplace, make_text

BROKEN = "it is broken beyond repair"


class Workshop(Workplace):
    """A workplace of any tenant, with a source of a name that people would give."""

    lease_seconds = 3600

    def __init__(
        self, database: Database, home: Path, tenant: str = "acme", source: str = "papers"
    ) -> None:
        super().__init__(database, home)
        self.tenant = tenant
        self.source = source
        folders = home / "folders"
        folders.mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(dir=folders))

    def record_run(self, profile: str | None, force: bool) -> Run:
        listing = FolderListing(self.folder)
        spec = SourceSpec(self.tenant, self.source, listing.kind, listing.location)
        return open_run(self.database, spec, profile=profile, force=force)

    def say(self, run_id: int, *messages: str, **values: Any) -> None:
        """Lines of a run's log, one after the other."""
        with self.database.write() as tx:
            record(
                tx,
                *[
                    Event(self.tenant, values.get("stage", "ING"), one, run_id=run_id)
                    for one in messages
                ],
            )

    def say_error(self, run_id: int, message: str) -> None:
        with self.database.write() as tx:
            record(tx, Event(self.tenant, "TXT", message, level="ERROR", run_id=run_id))

    def say_much(self, run_id: int, lines: int) -> None:
        """Very many lines at once: `line 0`, `line 1` and so on, of all stages and levels."""
        stages, levels = ("ING", "CRL", "TXT", "LLM", "EMB"), ("INFO",) * 8 + ("WARNING", "ERROR")
        with self.database.write() as tx:
            for start in range(0, lines, 10_000):
                rows = [
                    {
                        "tenant_id": self.tenant,
                        "run_id": run_id,
                        "stage": stages[number % 5],
                        "level": levels[number % 10],
                        "message": f"line {number}",
                        "document": f"document-{number % 997}.html" if number % 3 else None,
                        "at": tx.now + timedelta(milliseconds=number),
                    }
                    for number in range(start, min(start + 10_000, lines))
                ]
                tx.execute(sa.insert(events), rows)

    def log_of(self, run_id: int) -> list[tuple[int, str]]:
        """What the store holds of a run's log: numbers and messages."""
        query = sa.select(events.c.seq, events.c.message).where(events.c.run_id == run_id)
        with self.database.read() as tx:
            return [(row.seq, row.message) for row in tx.execute(query.order_by(events.c.seq))]

    def job(self, job_id: int) -> sa.Row[Any]:
        with self.database.read() as tx:
            return tx.execute(sa.select(work_items).where(work_items.c.id == job_id)).one()

    def node_named(self, name: str) -> sa.Row[Any]:
        own = sa.and_(nodes.c.tenant_id == self.tenant, nodes.c.external_id == name)
        with self.database.read() as tx:
            return tx.execute(sa.select(nodes).where(own)).one()

    def get_stuck(self, name: str) -> int:
        """Have a job of this document be held by a worker that gives no sign of life."""
        node = self.node_named(name)
        with self.database.write() as tx:
            job_id = int(refresh_node(tx, self.app.queue, self.tenant, node.id)["job_id"])
            held = {
                "status": ItemStatus.PROCESSING,
                "lease_owner": "worker-that-hangs",
                "lease_token": "held",
                "lease_expires_at": tx.now + timedelta(hours=1),
                "claimed_at": tx.now - timedelta(minutes=20),
                "started_at": tx.now - timedelta(minutes=20),
                "updated_at": tx.now - timedelta(minutes=15),
                "attempts": 1,
            }
            tx.execute(sa.update(work_items).where(work_items.c.id == job_id).values(held))
        return job_id

    def job_of(self, name: str) -> int:
        """The newest job of a document: of one that failed, its dead letter."""
        own = work_items.c.node_id == self.node_named(name).id
        with self.database.read() as tx:
            return int(tx.execute(sa.select(sa.func.max(work_items.c.id)).where(own)).scalar_one())

    def extract_again(self, name: str, **fields: Any) -> None:
        """One more extraction of this document, with these fields changed."""
        node = self.node_named(name)
        with self.database.write() as tx:
            row = {
                "tenant_id": self.tenant,
                "node_id": node.id,
                "run_id": None,
                "cache_key": f"{node.id}-{tx.now.isoformat()}",
                "profile": node.profile or "document",
                "version": "2.0.0",
                "model": "llama-3.3-70b-versatile",
                "confidence": 0.91,
                "fallback_reason": "low_confidence",
                "fields": {**node.fields, **fields},
                "extracted_at": tx.now,
            }
            tx.execute(sa.insert(extractions).values(row))

    def spend(self, days: int = 3) -> None:
        """Calls of two models on each of the last days."""
        with self.database.write() as tx:
            rows = [
                {
                    "tenant_id": self.tenant,
                    "node_id": self.app_node(),
                    "model": model,
                    "outcome": "answered",
                    "prompt_tokens": 1200 + 100 * day,
                    "completion_tokens": 300,
                    "cached_tokens": 200,
                    "seconds": 0.8,
                    "cost_usd": 0.0015 * (day + 1),
                    "called_at": tx.now - timedelta(days=day),
                }
                for day in range(days)
                for model in ("llama-3.1-8b-instant", "llama-3.3-70b-versatile")
            ]
            tx.execute(sa.insert(model_calls), rows)

    def app_node(self) -> str:
        with self.database.read() as tx:
            return str(tx.execute(sa.select(nodes.c.id).limit(1)).scalar_one())


@dataclass
class Furnished:
    """What there is of one tenant."""

    workshop: Workshop
    run_id: int
    active_run_id: int
    node_id: str
    stuck_job: int
    dead_job: int
    words: str
    """Found in no other tenant's documents."""
    others: list[str] = field(default_factory=list)

    @property
    def tenant(self) -> str:
        return self.workshop.tenant

    def close(self) -> None:
        self.workshop.close()


def furnish(database: Database, home: Path, tenant: str = "acme") -> Furnished:
    """A finished run with a résumé, papers and a broken file; a run under way; jobs that hang."""
    shop = Workshop(database, home, tenant)
    shop.write("ada.txt", f"{RESUME}\nShe is known to all of {tenant}.\n")
    for number in range(4):
        shop.write(f"paper-{number}.txt", make_text(f"Paper {number} of {tenant}", "turbines"))
    for name in ("bad", "worse"):
        shop.write(f"{name}.txt", make_text(name, "unreadable things"))
    broken = Fault(ErrorClass.CORRUPTION, BROKEN)
    shop.steps.on(Stage.TEXT, "unreadable", broken, broken)
    run_id = shop.ingest(profile="resume").run.id
    shop.extract_again("ada.txt", years_experience_total=9, primary_skills=["Python", "Rust"])
    shop.spend()
    under_way = Workshop(database, home, tenant, "harbour logs")
    lease = under_way.open()
    under_way.say(lease.run.id, "the first line", "the second line")
    under_way.close()
    return Furnished(
        shop,
        run_id,
        lease.run.id,
        shop.node_named("ada.txt").id,
        shop.get_stuck("paper-0.txt"),
        shop.job_of("bad.txt"),
        f"turbines {tenant}",
        [shop.node_named(f"paper-{number}.txt").id for number in range(4)],
    )
