"""What the stores hold and have written: bytes, rows, transactions, commands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.scaling.installation import Installation
from penstock.redis.client import build_redis_client

Ask = Callable[[str], list[tuple[Any, ...]]]
_WRITTEN = """
SELECT pg_database_size(current_database()), pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'),
       xact_commit
FROM pg_stat_database WHERE datname = current_database()
"""
_TABLES = """
SELECT relname, pg_total_relation_size(oid)
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""
_HNSW = """
SELECT coalesce(sum(pg_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
WHERE a.amname = 'hnsw'
"""


@dataclass(frozen=True, slots=True)
class Footprint:
    """At one moment; tables with their indexes."""

    figures: Mapping[str, float]

    def since(self, before: "Footprint") -> dict[str, float]:
        return {name: now - before.figures.get(name, 0) for name, now in self.figures.items()}


def read_footprint(place: Installation) -> Footprint:
    return Footprint(
        {
            **_store_figures("Postgres", place.ask_store),
            "Postgres: bytes of index hnsw": float(place.ask_store(_HNSW)[0][0]),
            **_store_figures("Prefect's Postgres", place.ask_prefect_store),
            **_row_counts("Prefect's Postgres", place.ask_prefect_store),
            **_redis_figures(place.redis_url),
            **_model_figures(place.ask_store),
            "raw store: bytes": _bytes_below(place.folder / "home" / "raw"),
        }
    )


def _store_figures(name: str, ask: Ask) -> dict[str, float]:
    [(size, wal, commits)] = ask(_WRITTEN)
    found = {
        f"{name}: bytes": float(size),
        f"{name}: bytes of WAL": float(wal),
        f"{name}: transactions": float(commits),
    }
    return found | {f"{name}: bytes of table {table}": float(size) for table, size in ask(_TABLES)}


def table_bytes_per_document(place: Installation) -> dict[str, float]:
    """Over everything in the store: tables grow by many pages at once, some ahead of their use."""
    [(documents,)] = place.ask_store("SELECT count(*) FROM nodes")
    return {table: size / documents for table, size in place.ask_store(_TABLES)}


def _row_counts(name: str, ask: Ask) -> dict[str, float]:
    """Exact ones: what the statistics say comes late."""
    tables = [table for table, _ in ask(_TABLES)]
    counts = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM \"{table}\"" for table in tables)
    return {f"{name}: rows of {table}": float(rows) for table, rows in ask(counts)}


def _model_figures(ask: Ask) -> dict[str, float]:
    """Tokens as the stand-in estimates them, at the prices of `penstock/llm/chain.py`."""
    sums = "SELECT sum(prompt_tokens), sum(completion_tokens), sum(cost_usd) FROM model_calls"
    prompt, completion, dollars = (float(found or 0) for found in ask(sums)[0])
    return {
        "models: prompt tokens": prompt,
        "models: completion tokens": completion,
        "models: dollars": dollars,
    }


def _redis_figures(url: str) -> dict[str, float]:
    with build_redis_client(url) as client:
        found: Any = client.info()
        keys: Any = client.dbsize()
    return {
        "Redis: keys": float(keys),
        "Redis: bytes": float(found["used_memory"]),
        "Redis: commands": float(found["total_commands_processed"]),
    }


def _bytes_below(folder: Path) -> float:
    return float(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
