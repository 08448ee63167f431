"""The texts that search looks through, under the name that operators of a library know."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.execute(
        """
        CREATE VIEW attachments_fts AS
        SELECT n.seq AS attachment_id, n.external_id AS filename, t.title, t.body AS extracted_text
        FROM nodes n JOIN texts t ON t.seq = n.seq
        WHERE n.source_id IS NULL AND n.url LIKE 'file:%'
        """
    )


def downgrade() -> None:
    op.execute("DROP VIEW attachments_fts")
