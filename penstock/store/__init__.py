"""The database: schema, migrations and transactions, the same code on SQLite and Postgres."""
