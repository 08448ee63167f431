"""Public job boards that answer in JSON, as listings that hold their postings."""
