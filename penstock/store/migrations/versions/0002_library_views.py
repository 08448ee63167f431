"""Views by which operators look into a library of attachments with plain SQL."""

from alembic import op

revision = "0002"
down_revision = "0001"

_VIEWS = {
    "attachments": """
        SELECT n.seq AS id, n.external_id AS filename, n.url AS path, n.media_type AS mime_type,
               n.title, t.body AS extracted_text, n.created_at, n.updated_at
        FROM nodes n LEFT JOIN texts t ON t.seq = n.seq
        WHERE n.source_id IS NULL AND n.url LIKE 'file:%'
    """,
    "extraction_queue": """
        SELECT w.id, n.seq AS attachment_id, w.status, w.priority, w.attempts AS retry_count,
               w.error_class AS error_type, w.error_message, w.lease_owner AS worker_id,
               w.created_at, w.started_at, w.finished_at AS completed_at,
               CASE WHEN w.status = 'retry_pending' THEN w.run_at END AS next_retry_at
        FROM work_items w JOIN nodes n ON n.id = w.node_id
        WHERE w.stage = 'text'
    """,
    "extraction_metrics": """
        SELECT w.id AS job_id, n.seq AS attachment_id, n.media_type AS mime_type,
               w.started_at, w.finished_at AS completed_at, length(t.body) AS text_length
        FROM work_items w JOIN nodes n ON n.id = w.node_id LEFT JOIN texts t ON t.seq = n.seq
        WHERE w.stage = 'text' AND w.status = 'complete'
    """,
    "worker_heartbeat": """
        SELECT id AS worker_id, host, pid, version, status, started_at,
               heartbeat_at AS last_heartbeat, completed AS jobs_completed, failed AS jobs_failed
        FROM workers
    """,
}


def upgrade() -> None:
    for name, query in _VIEWS.items():
        op.execute(f"CREATE VIEW {name} AS {query}")


def downgrade() -> None:
    for name in _VIEWS:
        op.execute(f"DROP VIEW {name}")
