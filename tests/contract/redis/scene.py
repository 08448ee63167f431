"""A database, its work queue and a Redis that hears of what happens there, or does not."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from redis import Redis

from penstock.documents import Stage
from penstock.queue.items import Claim, ItemStatus, StatusChange
from penstock.redis.mirror import RedisMirror
from penstock.redis.reconcile import Reconciled, reconcile
from penstock.store.database import Database
from penstock.store.schema import ACTIVE_ITEM
from tests.contract.redis.moves import expect_state, read_moves, read_state
from tests.factories import TENANT, Desk, make_fault, make_item


class Scene:
    """What is done through `act` is told as the work queue tells it."""

    def __init__(self, database: Database, client: Redis) -> None:
        self.database = database
        self.client = client
        self.dispatch = RedisMirror(client)
        self.desk = Desk(database)

    def fill(self) -> None:
        """Jobs that wait, are claimed and wait for a retry, in two queues."""
        for stage in (Stage.EXTRACT, Stage.EMBED):
            self.desk.later(1).enqueue(*(make_item(stage=stage) for _ in range(6)))
            self.desk.later(1).enqueue(make_item(stage=stage, tenant_id="Zürich"))
            self.desk.later(1)
            self.desk.fail(self.claim(stage, 2), make_fault())
            self.desk.later(1)
            self.claim(stage, 2)

    def claim(self, stage: Stage, limit: int = 1, tenant_id: str = TENANT) -> Claim:
        """Of one tenant, since several would take turns by lot."""
        return self.desk.claim(stages=[stage], limit=limit, tenant_id=tenant_id)

    def change(self, do: Callable[[], Any]) -> list[StatusChange]:
        """Do something one second later; the moves it made, of which Redis knows nothing."""
        before = self._versions()
        self.desk.later(1)
        do()
        after = self._versions()
        changed = {job for job, version in after.items() if before.get(job) != version}
        return [told for told in read_moves(self.database) if told.item.id in changed]

    def act(self, do: Callable[[], Any]) -> None:
        """Do something one second later and tell Redis."""
        self.dispatch.apply(self.change(do))

    def reconcile(self) -> Reconciled:
        return reconcile(self.database, self.client)

    def expected(self) -> dict[str, Any]:
        return expect_state(read_moves(self.database, ACTIVE_ITEM))

    def check(self) -> None:
        """Redis is right, and stays as it is."""
        assert read_state(self.client) == self.expected()
        assert self.reconcile() == Reconciled()
        assert read_state(self.client) == self.expected()

    def ids(self, status: ItemStatus, stage: Stage = Stage.EXTRACT) -> list[int]:
        rows = self.desk.rows().values()
        return [row.id for row in rows if row.status == status and row.stage == stage]

    def _versions(self) -> dict[int, tuple[str, datetime]]:
        return {job: (row.status, row.updated_at) for job, row in self.desk.rows().items()}
