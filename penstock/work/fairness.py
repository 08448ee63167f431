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
from penstock.work.statements import lease_statement

CLAIMS_REMEMBERED = 3


class Alone:
    """Remembers for a few claims that one tenant alone had work, which need not be asked each time.
    Whoever comes meanwhile waits for no more than these few batches."""

    def __init__(self) -> None:
        self._known: dict[Wanted, tuple[str, int]] = {}

    def recall(self, wanted: Wanted) -> str | None:
        tenant, left = self._known.get(wanted, ("", 0))
        if left == 0:
            return None
        self._known[wanted] = (tenant, left - 1)
        return tenant

    def note(self, wanted: Wanted, tenant: str | None) -> None:
        if tenant is None:
            self._known.pop(wanted, None)
        else:
            self._known[wanted] = (tenant, CLAIMS_REMEMBERED)


@dataclass(frozen=True, slots=True)
class Turns:
    """Finds and leases the rows that are claimed next."""

    tx: Tx
    wanted: Wanted
    named: Mapping[str, Any]
    """The parameters of what is wanted."""
    values: Mapping[str, Any]
    """The columns of the lease."""
    alone: Alone

    def lease(self, limit: int) -> list[sa.Row[Any]]:
        """The highest priority there is, an equal share of it for each tenant, its oldest first.
        A tenant alone gets all of the batch."""
        known = self.alone.recall(self.wanted)
        if known is not None and (found := self.lease_of(known, limit)):
            return found
        rows = self.tx.execute(top_priorities(self.wanted), dict(self.named))
        tops = {row.tenant: row.top for row in rows if row.top is not None}
        single = next(iter(tops)) if len(tops) == 1 else None
        self.alone.note(self.wanted, single)
        if single is not None:
            return self.lease_of(single, limit)
        return self._share_out(tops, limit) if tops else []

    def lease_of(self, tenant_id: str, limit: int) -> list[sa.Row[Any]]:
        """The same for one tenant: the highest priority first, then the oldest."""
        named = {**self.named, "tenant": tenant_id, "most": limit}
        return self._leased(list(self.tx.execute(of_tenant(self.wanted), named)))

    def _share_out(self, tops: Mapping[str, int], limit: int) -> list[sa.Row[Any]]:
        top = max(tops.values())
        tenants = [tenant for tenant, highest in tops.items() if highest == top]
        chosen = random.sample(tenants, min(len(tenants), limit))
        share = math.ceil(limit / len(chosen))
        rows = self._find_shares(chosen, top, share)[:limit]
        # Those that had more than their share get what the others left over.
        had_more = [tenant for tenant in chosen if _count(rows, tenant) == share]
        while had_more and len(rows) < limit:
            left = math.ceil((limit - len(rows)) / len(had_more))
            more = self._find_shares(had_more, top, left, taken=[row.id for row in rows])
            had_more = [tenant for tenant in had_more if _count(more, tenant) == left]
            rows += more
        return self._leased(rows[:limit])

    def _leased(self, rows: list[sa.Row[Any]]) -> list[sa.Row[Any]]:
        if rows:
            lease = {f"lease_{name}": value for name, value in self.values.items()}
            statement = lease_statement(self.wanted.dialect, tuple(self.values))
            self.tx.execute(statement, lease | {"ids": [row.id for row in rows]})
        return rows

    def _find_shares(
        self, tenants: Sequence[str], top: int, share: int, taken: Sequence[int] | None = None
    ) -> list[sa.Row[Any]]:
        """Rows that are due, locked where the database locks rows."""
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
