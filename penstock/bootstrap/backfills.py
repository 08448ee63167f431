"""Backfills, from settings: what nodes are brought up to, how many may wait, what models cost."""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.bootstrap.app import App
from penstock.errors import NotFound, UsageError

if TYPE_CHECKING:
    from penstock.backfill.dispatcher import Dispatcher
    from penstock.backfill.estimate import Estimate
    from penstock.backfill.record import Backfill
    from penstock.backfill.selection import Selection

log = logging.getLogger(__name__)


def choose_nodes(
    app: App,
    tenant: str | None,
    *,
    all_tenants: bool = False,
    source: str | None = None,
    reasons: Collection[str] | None = None,
    stale_days: float | None = None,
    limit: int | None = None,
) -> "Selection":
    """A selection for these settings; UsageError or NotFound when it makes no sense."""
    from penstock.backfill.selection import Selection, Target

    if all_tenants == bool(tenant):
        raise UsageError("name a tenant, or ask for all tenants: one of the two")
    settings = app.settings
    target = Target(settings.extraction.version, app.embedder.identity, settings.extraction.enabled)
    return Selection.choose(
        target,
        tenant_id=tenant or None,
        source=None if source is None else _source_name(app, source, tenant or None),
        reasons=reasons,
        stale_days=stale_days,
        limit=limit,
    )


def _source_name(app: App, source: str, tenant_id: str | None) -> str:
    """Its name, also when it is given by where it is."""
    import sqlalchemy as sa

    from penstock.sources.catalogue import read_source
    from penstock.store.schema import sources

    with app.database.read() as tx:
        if tenant_id is not None:
            return read_source(tx, tenant_id, source).name
        named = sa.select(sources.c.id).where(sources.c.name == source).limit(1)
        if tx.execute(named).first() is None:
            raise NotFound(f"no tenant has a source {source!r}")
    return source


def estimate(app: App, selection: "Selection") -> "Estimate":
    """What it would do and cost."""
    from penstock.backfill.estimate import Pricing, estimate_backfill
    from penstock.llm.prices import price_table

    limits = app.settings.extraction
    models = tuple(dict.fromkeys((limits.primary_model, limits.fallback_model)))
    pricing = Pricing(models, price_table(limits.prices), limits.max_input_chars)
    with app.database.read() as tx:
        return estimate_backfill(tx, selection, pricing if app.settings.asks_models else None)


def dispatcher(app: App, backfill: "Backfill") -> "Dispatcher":
    """Leaves at least half of what may wait to fresh work, which the intake would refuse else."""
    from penstock.backfill.dispatcher import Dispatcher

    embedding = app.settings.embedding
    room = min(embedding.queue_max_depth, embedding.tenant_max_pending) // 2
    window = max(1, min(app.settings.backfill_window, room))
    return Dispatcher(app.database, app.queue, backfill.id, window)


def switch_vectors(app: App) -> str:
    """Let search use the vectors that are made now, if none of them is missing; how it stands."""
    from penstock.search.identity import look_at_switch, try_switch
    from penstock.store.patience import patient

    with app.database.read() as tx:
        before = look_at_switch(tx, app.embedder.identity)
    after = patient(try_switch)(app.database, app.embedder.identity)
    if not after.done:
        log.warning("%s", after)
    elif not before.done:
        log.info("search has changed over from %s to %s", before.active, after.active)
    return str(after)
