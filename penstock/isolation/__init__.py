"""Work in child processes that can be killed: one bad input costs itself and nothing else."""
