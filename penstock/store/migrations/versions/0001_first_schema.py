"""First schema."""

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Id, Json, NodeId, UtcDateTime, Vector

revision = "0001"
down_revision = None


# Full-text search. Both fold case and reduce English words to their stems. Postgres refuses vectors
# over 1 MB, so what it indexes of a very long text ends earlier.
_SEARCH = {
    "sqlite": [
        """CREATE VIRTUAL TABLE texts_fts USING fts5(
            title, body, content='texts', content_rowid='seq',
            tokenize='porter unicode61 remove_diacritics 2'
        )""",
        """CREATE TRIGGER texts_fts_insert AFTER INSERT ON texts BEGIN
            INSERT INTO texts_fts(rowid, title, body) VALUES (new.seq, new.title, new.body);
        END""",
        """CREATE TRIGGER texts_fts_delete AFTER DELETE ON texts BEGIN
            INSERT INTO texts_fts(texts_fts, rowid, title, body)
            VALUES ('delete', old.seq, old.title, old.body);
        END""",
        """CREATE TRIGGER texts_fts_update AFTER UPDATE ON texts BEGIN
            INSERT INTO texts_fts(texts_fts, rowid, title, body)
            VALUES ('delete', old.seq, old.title, old.body);
            INSERT INTO texts_fts(rowid, title, body) VALUES (new.seq, new.title, new.body);
        END""",
    ],
    "postgresql": [
        """ALTER TABLE texts ADD COLUMN search tsvector GENERATED ALWAYS AS (
            setweight(to_tsvector('english', left(title, 1000)), 'A') ||
            setweight(to_tsvector('english', left(body, 250000)), 'B')
        ) STORED""",
        "CREATE INDEX ix_texts_search ON texts USING gin (search)",
    ],
}


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    op.create_table(
        "events",
        sa.Column("seq", Id, nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("run_id", Id, nullable=True),
        sa.Column("node_id", NodeId, nullable=True),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_run", "events", ["run_id", "seq"], unique=False)
    op.create_table(
        "extractions",
        sa.Column("id", Id, nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("node_id", NodeId, nullable=False),
        sa.Column("run_id", Id, nullable=True),
        sa.Column("cache_key", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("fallback_reason", sa.Text(), nullable=True),
        sa.Column("fields", Json, nullable=False),
        sa.Column("extracted_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("tenant_id", "cache_key", name="uq_extractions_tenant_key"),
    )
    op.create_index("ix_extractions_node", "extractions", ["node_id"], unique=False)
    op.create_table(
        "model_calls",
        sa.Column("id", Id, nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("run_id", Id, nullable=True),
        sa.Column("node_id", NodeId, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("called_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_model_calls_run", "model_calls", ["run_id"], unique=False)
    op.create_table(
        "sources",
        sa.Column("id", Id, nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_sources_tenant_name"),
    )
    op.create_table(
        "work_items",
        sa.Column("id", Id, nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("node_id", NodeId, nullable=False),
        sa.Column("run_id", Id, nullable=True),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("rescues", sa.Integer(), nullable=False),
        sa.Column("run_at", UtcDateTime, nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", UtcDateTime, nullable=True),
        sa.Column("claimed_at", UtcDateTime, nullable=True),
        sa.Column("started_at", UtcDateTime, nullable=True),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("finished_at", UtcDateTime, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_work_items_due",
        "work_items",
        [sa.text("priority DESC"), "id"],
        unique=False,
        sqlite_where=sa.text("status IN ('pending', 'retry_pending')"),
        postgresql_where=sa.text("status IN ('pending', 'retry_pending')"),
    )
    op.create_index(
        "ix_work_items_lease",
        "work_items",
        ["lease_expires_at"],
        unique=False,
        sqlite_where=sa.text("status = 'processing'"),
        postgresql_where=sa.text("status = 'processing'"),
    )
    op.create_index("ix_work_items_run", "work_items", ["run_id", "stage", "status"], unique=False)
    op.create_index(
        "uq_work_items_one_active",
        "work_items",
        ["node_id", "stage"],
        unique=True,
        sqlite_where=sa.text("status IN ('pending', 'processing', 'retry_pending')"),
        postgresql_where=sa.text("status IN ('pending', 'processing', 'retry_pending')"),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started_at", UtcDateTime, nullable=False),
        sa.Column("heartbeat_at", UtcDateTime, nullable=False),
        sa.Column("completed", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", Id, nullable=False),
        sa.Column("item_id", Id, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("error_class", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("failed_at", UtcDateTime, nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["work_items.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_attempts_item", "attempts", ["item_id"], unique=False)
    op.create_table(
        "nodes",
        sa.Column("seq", Id, nullable=False),
        sa.Column("id", NodeId, nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("source_id", Id, nullable=True),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("profile", sa.Text(), nullable=True),
        sa.Column("media_type", sa.Text(), nullable=True),
        sa.Column("raw_key", sa.Text(), nullable=True),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("fields", Json, nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=True),
        sa.Column("simhash", sa.BigInteger(), nullable=True),
        sa.Column("etag", sa.Text(), nullable=True),
        sa.Column("last_modified", sa.Text(), nullable=True),
        sa.Column("extraction_status", sa.Text(), nullable=True),
        sa.Column("extraction_reason", sa.Text(), nullable=True),
        sa.Column("extraction_error", sa.Text(), nullable=True),
        sa.Column("extraction_model", sa.Text(), nullable=True),
        sa.Column("extraction_confidence", sa.Float(), nullable=True),
        sa.Column("extraction_version", sa.Text(), nullable=True),
        sa.Column("extracted_at", UtcDateTime, nullable=True),
        sa.Column("embedding_status", sa.Text(), nullable=True),
        sa.Column("embedding_reason", sa.Text(), nullable=True),
        sa.Column("embedding_error", sa.Text(), nullable=True),
        sa.Column("embedding_identity", sa.Text(), nullable=True),
        sa.Column("embedded_hash", sa.Text(), nullable=True),
        sa.Column("embedded_at", UtcDateTime, nullable=True),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("expired_at", UtcDateTime, nullable=True),
        sa.ForeignKeyConstraint(
            ["source_id"],
            ["sources.id"],
        ),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("source_id", "external_id", name="uq_nodes_source_external"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_nodes_tenant", "nodes", ["tenant_id", "seq"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", Id, nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("source_id", Id, nullable=False),
        sa.Column("profile", sa.Text(), nullable=True),
        sa.Column("force", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("paused_reason", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("flow_run_id", sa.Text(), nullable=True),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", UtcDateTime, nullable=True),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("started_at", UtcDateTime, nullable=True),
        sa.Column("listed_at", UtcDateTime, nullable=True),
        sa.Column("finished_at", UtcDateTime, nullable=True),
        sa.Column("ready", sa.Integer(), nullable=True),
        sa.Column("skipped", sa.Integer(), nullable=True),
        sa.Column("error_count", sa.Integer(), nullable=True),
        sa.Column("expired", sa.Integer(), nullable=True),
        sa.Column("pending", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["source_id"],
            ["sources.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_runs_one_active",
        "runs",
        ["source_id"],
        unique=True,
        sqlite_where=sa.text("status IN ('pending', 'initializing', 'ingesting')"),
        postgresql_where=sa.text("status IN ('pending', 'initializing', 'ingesting')"),
    )
    op.create_table(
        "embeddings",
        sa.Column("seq", Id, nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("vector", Vector, nullable=False),
        sa.Column("drift", sa.Float(), nullable=True),
        sa.Column("embedded_at", UtcDateTime, nullable=False),
        sa.ForeignKeyConstraint(["seq"], ["nodes.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", "identity"),
    )
    op.create_table(
        "run_documents",
        sa.Column("run_id", Id, nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("node_id", NodeId, nullable=True),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("change", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "external_id"),
    )
    op.create_index("ix_run_documents_status", "run_documents", ["run_id", "status"], unique=False)
    op.create_table(
        "texts",
        sa.Column("seq", Id, nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["seq"], ["nodes.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq"),
    )
    for statement in _SEARCH[op.get_bind().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("there is nothing before the first schema")
