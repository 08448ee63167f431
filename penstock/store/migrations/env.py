"""Runs revisions on the connection that `penstock.store.migration` hands over."""

from alembic import context

from penstock.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
