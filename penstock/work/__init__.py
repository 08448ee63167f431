"""Work items: one (node, stage) each, claimed under a lease, in the database and nowhere else."""
