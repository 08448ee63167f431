"""Alembic's environment and the revisions, inside the package so that an installed copy has them."""
