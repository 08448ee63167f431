"""Alembic's environment and the revisions, inside the package: an installed copy has them."""
