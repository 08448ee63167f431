"""What happened, step by step, in the database: exact per run, in one sequence."""
