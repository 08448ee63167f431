"""Whose turn it is: within one priority, tenants take turns, however much each of them has."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.work.due import (
    Wanted,
    of_tenant,
    share_of_tenant,
    shares_of_tenants,
    top_priorities,
)


@dataclass(frozen=True, slots=True)
class Turns:
    """Finds the rows that are claimed next, locked where the database locks rows."""

    tx: Tx
    wanted: Wanted
    named: Mapping[str, Any]
    """The parameters of what is wanted."""

    def take(self, limit: int) -> list[sa.Row[Any]]:
        """The highest priority there is, an equal share of it for each tenant, its oldest first.
        A tenant alone gets all of the batch."""
        rows = self.tx.execute(top_priorities(self.wanted), dict(self.named))
        tops = {row.tenant: row.top for row in rows if row.top is not None}
        if not tops:
            return []
        if len(tops) == 1:
            return self.take_of(next(iter(tops)), limit)
        highest = max(tops.values())
        tenants = [tenant for tenant, top in tops.items() if top == highest]
        return self._share_out(tenants, highest, limit)

    def take_of(self, tenant_id: str, limit: int) -> list[sa.Row[Any]]:
        """The same for one tenant: the highest priority first, then the oldest."""
        named = {**self.named, "tenant": tenant_id, "most": limit}
        return list(self.tx.execute(of_tenant(self.wanted), named))

    def _share_out(self, tenants: Sequence[str], top: int, limit: int) -> list[sa.Row[Any]]:
        chosen = random.sample(tenants, min(len(tenants), limit))
        share = math.ceil(limit / len(chosen))
        rows = self._take_shares(chosen, top, share)[:limit]
        # Those that had more than their share get what the others left over.
        had_more = [tenant for tenant in chosen if _count(rows, tenant) == share]
        if had_more and len(rows) < limit:
            left = math.ceil((limit - len(rows)) / len(had_more))
            rows += self._take_shares(had_more, top, left, taken=[row.id for row in rows])
        return rows[:limit]

    def _take_shares(
        self, tenants: Sequence[str], top: int, share: int, taken: Sequence[int] | None = None
    ) -> list[sa.Row[Any]]:
        again = taken is not None
        named = {**self.named, "top": top, "most": share} | ({"taken": taken} if again else {})
        if self.wanted.dialect == "postgresql":
            shares = shares_of_tenants(self.wanted, again)
            return list(self.tx.execute(shares, {**named, "tenants": list(tenants)}))
        one = share_of_tenant(self.wanted, again)
        found = (self.tx.execute(one, {**named, "tenant": tenant}) for tenant in tenants)
        return [row for rows in found for row in rows]


def _count(rows: Sequence[sa.Row[Any]], tenant: str) -> int:
    return sum(row.tenant_id == tenant for row in rows)
