"""The tables. Migrations build them; a test holds the two together."""

import sqlalchemy as sa

from penstock.store.columns import Id, Json, NodeId, Text, UtcDateTime, Vector

metadata = sa.MetaData()

# Written out, never bound: both databases use a partial index only when the condition is literal.
ACTIVE_ITEM = sa.text("status IN ('pending', 'processing', 'retry_pending')")
WAITING_ITEM = sa.text("status IN ('pending', 'retry_pending')")
LEASED_ITEM = sa.text("status = 'processing'")
ITEM_OF_RUN = sa.text("run_id IS NOT NULL")
ACTIVE_RUN = sa.text("status IN ('pending', 'initializing', 'ingesting')")
ACTIVE_BACKFILL = sa.text("status = 'active'")
UNDECIDED_CANARY = sa.text("status = 'canary'")
DEAD_ITEM = sa.text("status = 'failed'")
COMPLETE_ITEM = sa.text("status = 'complete'")
CANCELLED_ITEM = sa.text("status = 'cancelled'")
# Every item is in one of these, and each of these has an index by tenant or is small.
PARTS_OF_ITEMS = (WAITING_ITEM, LEASED_ITEM, DEAD_ITEM, CANCELLED_ITEM, COMPLETE_ITEM)
ACTIVE_ITEM_OF_RUN = sa.text(f"{ACTIVE_ITEM.text} AND {ITEM_OF_RUN.text}")
FELL_BACK = sa.text("fallback_reason IS NOT NULL")


def _partial_index(
    name: str, *columns: str | sa.TextClause, where: sa.TextClause, unique: bool = False
) -> sa.Index:
    return sa.Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def _review_index(name: str, *columns: str, condition: str = "") -> sa.Index:
    """Of the rows that need review, which are counted and listed without reading the others."""
    # As SQLAlchemy writes the flag in the conditions of queries.
    in_sqlite, in_postgres = (
        sa.text(flag + condition) for flag in ("needs_review = 1", "needs_review")
    )
    return sa.Index(name, *columns, sqlite_where=in_sqlite, postgresql_where=in_postgres)


sources = sa.Table(
    "sources",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("name", Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("location", Text, nullable=False),
    sa.Column("settings", Json, nullable=False, server_default="{}"),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("removed_at", UtcDateTime),
    sa.UniqueConstraint("tenant_id", "name", name="uq_sources_tenant_name"),
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("seq", Id, primary_key=True),
    sa.Column("id", NodeId, nullable=False, unique=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("source_id", Id, sa.ForeignKey("sources.id")),
    sa.Column("external_id", Text, nullable=False),
    sa.Column("url", Text),
    sa.Column("title", Text),
    sa.Column("profile", sa.Text),
    # Who chose it (`documents.ProfileBasis`; null: an earlier version), and why.
    sa.Column("profile_basis", sa.Text),
    sa.Column("profile_reason", Text),
    sa.Column("media_type", Text),
    sa.Column("raw_key", sa.Text),
    sa.Column("metadata", Json, nullable=False),
    sa.Column("fields", Json, nullable=False),
    # As it came in over HTTP: classes, props, metadata, payload_ref.
    sa.Column("given", Json),
    # Change marks: written together with success, and only then.
    sa.Column("content_hash", sa.Text),
    sa.Column("simhash", sa.BigInteger),
    sa.Column("etag", Text),
    sa.Column("last_modified", Text),
    sa.Column("extraction_status", sa.Text),
    sa.Column("extraction_reason", sa.Text),
    sa.Column("extraction_error", Text),
    sa.Column("extraction_model", sa.Text),
    sa.Column("extraction_confidence", sa.Float),
    sa.Column("extraction_version", sa.Text),
    # Of the schema and the prompt that the fields were extracted with.
    sa.Column("extraction_profile_hash", sa.Text),
    # Where each value stands and how sure it is (`documents.FieldEvidence`), by field.
    sa.Column("evidence", Json),
    sa.Column("needs_review", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("review_reasons", Json),
    # 0 to 10 while it needs review: how much is gained by it (`review.corrections`).
    sa.Column("review_value", sa.Integer),
    sa.Column("extracted_at", UtcDateTime),
    # The length of passages that its text was cut into; null: it is yet to be cut.
    sa.Column("passage_chars", sa.Integer),
    sa.Column("embedding_status", sa.Text),
    sa.Column("embedding_reason", sa.Text),
    sa.Column("embedding_error", Text),
    sa.Column("embedding_identity", sa.Text),
    sa.Column("embedded_hash", sa.Text),
    sa.Column("embedded_at", UtcDateTime),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("expired_at", UtcDateTime),
    sa.UniqueConstraint("source_id", "external_id", name="uq_nodes_source_external"),
    sa.Index("ix_nodes_tenant", "tenant_id", "seq"),
    sa.Index("ix_nodes_raw", "raw_key"),
    _review_index("ix_nodes_review", "tenant_id", "seq", condition=" AND expired_at IS NULL"),
    _review_index(
        "ix_nodes_review_queue",
        *("tenant_id", "review_value", "seq"),
        condition=" AND expired_at IS NULL",
    ),
    sqlite_autoincrement=True,
)

texts = sa.Table(
    "texts",
    metadata,
    sa.Column("seq", Id, sa.ForeignKey("nodes.seq", ondelete="CASCADE"), primary_key=True),
    sa.Column("title", Text, nullable=False),
    sa.Column("body", Text, nullable=False),
)

# Of texts that are cut; a text of one passage has none, and so has one that is yet to be cut.
passages = sa.Table(
    "passages",
    metadata,
    sa.Column("seq", Id, sa.ForeignKey("nodes.seq", ondelete="CASCADE"), primary_key=True),
    # From 0, in the order of the text.
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("start", sa.Integer, nullable=False),
    sa.Column("end", sa.Integer, nullable=False),
    sa.Column("page", sa.Integer),
    sa.Column("heading", Json),
    sqlite_with_rowid=False,
)

embeddings = sa.Table(
    "embeddings",
    metadata,
    sa.Column("seq", Id, sa.ForeignKey("nodes.seq", ondelete="CASCADE"), primary_key=True),
    sa.Column("identity", sa.Text, primary_key=True),
    # Of the passage. A vector of an earlier version is of the beginning of its text, at 0.
    sa.Column("position", sa.Integer, primary_key=True, server_default="0"),
    sa.Column("vector", Vector, nullable=False),
    # Of what was embedded: the same is not embedded again.
    sa.Column("hash", sa.LargeBinary),
    sa.Column("drift", sa.Float),
    sa.Column("embedded_at", UtcDateTime, nullable=False),
)

extractions = sa.Table(
    "extractions",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("node_id", NodeId, nullable=False),
    sa.Column("run_id", Id),
    sa.Column("cache_key", sa.Text, nullable=False),
    sa.Column("profile", sa.Text, nullable=False),
    sa.Column("profile_hash", sa.Text),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("confidence", sa.Float, nullable=False),
    sa.Column("fallback_reason", sa.Text),
    sa.Column("marks", Json),
    sa.Column("fields", Json, nullable=False),
    sa.Column("evidence", Json),
    sa.Column("extracted_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("tenant_id", "cache_key", name="uq_extractions_tenant_key"),
    sa.Index("ix_extractions_node", "node_id"),
    sa.Index("ix_extractions_extracted", "extracted_at"),
    _partial_index("ix_extractions_fallbacks", "run_id", where=FELL_BACK),
    _partial_index("ix_extractions_fallbacks_tenant", "tenant_id", where=FELL_BACK),
)

# Of one field each; of several of the same field and text, the newest counts.
corrections = sa.Table(
    "corrections",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("node_id", NodeId, nullable=False),
    sa.Column("profile", sa.Text, nullable=False),
    sa.Column("field", Text, nullable=False),
    sa.Column("value", Json, nullable=False),
    # What the node showed; the same when that was accepted.
    sa.Column("before", Json, nullable=False),
    sa.Column("author", Text, nullable=False),
    sa.Column("reason", Text),
    # Of the text that it was made for.
    sa.Column("text_hash", sa.Text, nullable=False),
    sa.Column("corrected_at", UtcDateTime, nullable=False),
    sa.Index("ix_corrections_node", "node_id", "id"),
    sa.Index("ix_corrections_tenant", "tenant_id", "node_id"),
    sqlite_autoincrement=True,
)

_CALL_SUMS = ("prompt_tokens", "completion_tokens", "cached_tokens", "seconds", "cost_usd")
model_calls = sa.Table(
    "model_calls",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("run_id", Id),
    sa.Column("node_id", NodeId, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("prompt_tokens", sa.Integer, nullable=False),
    sa.Column("completion_tokens", sa.Integer, nullable=False),
    sa.Column("cached_tokens", sa.Integer, nullable=False, server_default="0"),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("cost_usd", sa.Float, nullable=False),
    sa.Column("called_at", UtcDateTime, nullable=False),
    # All that calls are summed by: a call takes far longer than writing it into both.
    sa.Index("ix_model_calls_run_sums", "run_id", "model", "outcome", *_CALL_SUMS),
    sa.Index(
        "ix_model_calls_tenant_sums", "tenant_id", "called_at", "model", "outcome", *_CALL_SUMS
    ),
    sa.Index("ix_model_calls_called", "called_at"),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("source_id", Id, sa.ForeignKey("sources.id"), nullable=False),
    sa.Column("profile", sa.Text),
    sa.Column("force", sa.Boolean, nullable=False),
    # Documents that are processed although they are unchanged.
    sa.Column("forced", Json),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("paused_reason", Text),
    sa.Column("error", Text),
    sa.Column("flow_run_id", sa.Text),
    # What does its work, by its key in `configurations`.
    sa.Column("configuration", sa.Text),
    # The share of its documents that may fail; null: all but one.
    sa.Column("max_failed", sa.Float),
    sa.Column("lease_token", sa.Text),
    sa.Column("lease_expires_at", UtcDateTime),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("started_at", UtcDateTime),
    sa.Column("listed_at", UtcDateTime),
    sa.Column("finished_at", UtcDateTime),
    # Null until the run is finalized; then exact and never written again.
    sa.Column("ready", sa.Integer),
    # Of those that are ready.
    sa.Column("needs_review", sa.Integer),
    sa.Column("skipped", sa.Integer),
    sa.Column("error_count", sa.Integer),
    sa.Column("expired", sa.Integer),
    sa.Column("pending", sa.Integer),
    # Counts by stage and change, kept when the rows they are counted from are about to be deleted.
    sa.Column("figures", Json),
    _partial_index("uq_runs_one_active", "source_id", where=ACTIVE_RUN, unique=True),
    sqlite_autoincrement=True,
)

run_documents = sa.Table(
    "run_documents",
    metadata,
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("external_id", Text, primary_key=True),
    sa.Column("node_id", NodeId),
    sa.Column("url", Text),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("change", sa.Text, nullable=False),
    sa.Column("reason", Text),
    sa.Column("error_class", sa.Text),
    sa.Column("needs_review", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    # All that a run's documents are counted by, so that counting reads no row.
    sa.Index("ix_run_documents_counts", "run_id", "status", "change"),
    sa.Index("ix_run_documents_node", "node_id"),
    _review_index("ix_run_documents_review", "run_id"),
)

work_items = sa.Table(
    "work_items",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("node_id", NodeId, nullable=False),
    sa.Column("run_id", Id),
    sa.Column("stage", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("rescues", sa.Integer, nullable=False),
    # Given back, or taken back from a dead worker: comes before fresh work of its priority.
    sa.Column("interrupted", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("run_at", UtcDateTime, nullable=False),
    sa.Column("payload", Json, nullable=False),
    # What must do it, by its key in `configurations`; null: any worker.
    sa.Column("requires", sa.Text),
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_token", sa.Text),
    sa.Column("lease_expires_at", UtcDateTime),
    sa.Column("claimed_at", UtcDateTime),
    sa.Column("started_at", UtcDateTime),
    sa.Column("error_class", sa.Text),
    sa.Column("error_message", Text),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    _partial_index("uq_work_items_one_active", "node_id", "stage", where=ACTIVE_ITEM, unique=True),
    _partial_index(
        "ix_work_items_next",
        "tenant_id",
        sa.text("priority DESC"),
        sa.text("interrupted DESC"),
        "id",
        where=WAITING_ITEM,
    ),
    sa.Index("ix_work_items_node", "node_id"),
    _partial_index("ix_work_items_dead", "tenant_id", "stage", "id", where=DEAD_ITEM),
    _partial_index("ix_work_items_lease", "lease_expires_at", where=LEASED_ITEM),
    # All that a run's items are counted by.
    _partial_index(
        "ix_work_items_run_counts", "run_id", "stage", "status", "outcome", where=ITEM_OF_RUN
    ),
    # A run's own claims pass over nothing of what other runs of the tenant have waiting.
    _partial_index(
        "ix_work_items_run_next",
        "run_id",
        "tenant_id",
        sa.text("priority DESC"),
        sa.text("interrupted DESC"),
        "id",
        where=ACTIVE_ITEM_OF_RUN,
    ),
    # Not of all items: without figures about a table, SQLite would take it for everything that
    # names a tenant, and pass over the small indexes of the other items.
    _partial_index("ix_work_items_complete", "tenant_id", "id", "stage", where=COMPLETE_ITEM),
    _partial_index("ix_work_items_done", "stage", "finished_at", where=COMPLETE_ITEM),
    _partial_index("ix_work_items_cancelled", "tenant_id", "stage", "id", where=CANCELLED_ITEM),
    sqlite_autoincrement=True,
)

configurations = sa.Table(
    "configurations",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("extractor", sa.Text, nullable=False),
    sa.Column("asks_models", sa.Boolean, nullable=False),
    sa.Column("embedder", sa.Text, nullable=False),
    sa.Column("blocks", Json, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("item_id", Id, sa.ForeignKey("work_items.id", ondelete="CASCADE"), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("owner", sa.Text),
    sa.Column("error_class", sa.Text, nullable=False),
    sa.Column("message", Text, nullable=False),
    sa.Column("failed_at", UtcDateTime, nullable=False),
    sa.Index("ix_attempts_item", "item_id"),
)

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("started_at", UtcDateTime, nullable=False),
    sa.Column("heartbeat_at", UtcDateTime, nullable=False),
    sa.Column("completed", sa.Integer, nullable=False),
    sa.Column("failed", sa.Integer, nullable=False),
)

duties = sa.Table(
    "duties",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text),
    sa.Column("held_until", UtcDateTime, nullable=False),
)

backfills = sa.Table(
    "backfills",
    metadata,
    sa.Column("id", Id, primary_key=True),
    # Null: of all tenants.
    sa.Column("tenant_id", sa.Text),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("selection", Json, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    # The `seq` of the last node that was looked at.
    sa.Column("cursor", Id, nullable=False),
    sa.Column("enqueued", sa.Integer, nullable=False),
    # Of a canary: who extracts, how many documents there are, and how it ended.
    sa.Column("canary", Json),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    _partial_index("uq_backfills_one_active", "key", where=ACTIVE_BACKFILL, unique=True),
    _partial_index("uq_backfills_one_canary", "key", where=UNDECIDED_CANARY, unique=True),
    sqlite_autoincrement=True,
)

# The sample of a canary: what its documents hold, and what they would get.
canary_documents = sa.Table(
    "canary_documents",
    metadata,
    sa.Column(
        "backfill_id", Id, sa.ForeignKey("backfills.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("seq", Id, sa.ForeignKey("nodes.seq", ondelete="CASCADE"), primary_key=True),
    sa.Column("lease_token", sa.Text),
    sa.Column("lease_expires_at", UtcDateTime),
    # Null: to be done. `ready`, or why there are no fields.
    sa.Column("outcome", Text),
    # Under which the answer is kept.
    sa.Column("cache_key", sa.Text),
    sa.Column("profile", sa.Text),
    # Fields and confidence as they were, and as they would be.
    sa.Column("old", Json),
    sa.Column("new", Json),
    sa.Index("ix_canary_documents_node", "seq"),
)

# One row: the vectors that search looks among.
vector_identity = sa.Table(
    "vector_identity",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("identity", sa.Text, nullable=False),
    sa.Column("previous", sa.Text),
    sa.Column("since", UtcDateTime, nullable=False),
)

# Totals of rows that were deleted, for counters that never go down.
tallies = sa.Table(
    "tallies",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("label", sa.Text, primary_key=True),
    sa.Column("total", sa.BigInteger, nullable=False),
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_hash", sa.Text, nullable=False),
    sa.Column("answer", Json),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Index("ix_idempotency_keys_created", "created_at"),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", Id, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("run_id", Id),
    sa.Column("node_id", NodeId),
    sa.Column("source", Text),
    sa.Column("document", Text),
    sa.Column("stage", sa.Text, nullable=False),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("message", Text, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Index("ix_events_run", "run_id", "seq"),
    sa.Index("ix_events_tenant", "tenant_id", "seq"),
    sqlite_autoincrement=True,
)
