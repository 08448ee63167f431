"""Work items: one (node, stage) each, claimed under a lease, kept in the database."""
