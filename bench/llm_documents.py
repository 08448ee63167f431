"""Makes résumés, asks about them as the chain does, and lays them into a store ready to extract."""

import random
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from penstock.app import open_app
from penstock.documents import ExtractionRequest, Stage
from penstock.llm.prompts import (
    JsonMode,
    JsonModes,
    PreparedRequest,
    build_messages,
    prepare_request,
)
from penstock.queue.items import NewItem
from penstock.settings import Settings
from penstock.store.database import Tx, new_node_id
from penstock.store.schema import nodes, texts, work_items

PROFILE = "resume"
MODEL = "openai/gpt-oss-20b"
MAX_TOKENS = 1024
_TENANT = "default"
_TITLES = ("Controls engineer", "Plant operator", "Surveyor", "Data analyst", "Welder", "Planner")
_SKILLS = ("Python", "PostgreSQL", "hydraulics", "PLC", "inspection", "budgets", "Kubernetes")
_PLACES = ("Inverness", "Tromsø", "Bergen", "Grenoble", "Graz", "Porto", "Vigo", "Ljubljana")


def make_texts(count: int, seed: int) -> list[str]:
    """Distinct résumés of about 3,000 characters."""
    return [_resume(number, random.Random(f"{seed}-{number}")) for number in range(count)]


def make_bodies(count: int, seed: int) -> list[dict[str, Any]]:
    """The requests that the chain makes for these résumés."""
    modes = JsonModes("low")
    bodies = []
    for text in make_texts(count, seed):
        question = prepare_request(ExtractionRequest(text, PROFILE))
        assert isinstance(question, PreparedRequest)
        asked = {
            "model": MODEL,
            "messages": build_messages(question, with_schema=False),
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
        }
        bodies.append(asked | modes.options(MODEL, JsonMode.STRICT, question.profile))
    return bodies


def lay_in(settings: Settings, count: int, seed: int) -> None:
    """Documents whose text is known and whose next stage is `extract`."""
    with open_app(settings) as app, app.database.write() as tx:
        ids = [_add_document(tx, text) for text in make_texts(count, seed)]
        items = [NewItem(_TENANT, node_id, Stage.EXTRACT) for node_id in ids]
        app.queue.enqueue(tx, items)


def read_end(settings: Settings) -> tuple[int, float]:
    """How many documents are extracted and embedded, and when the last item was finished."""
    ready = sa.select(sa.func.count()).where(
        nodes.c.extraction_status == "ready", nodes.c.embedding_status == "ready"
    )
    with open_app(settings) as app, app.database.read() as tx:
        count = tx.execute(ready).scalar_one()
        last = tx.execute(sa.select(sa.func.max(work_items.c.finished_at))).scalar_one()
    return count, last.timestamp() if last else 0.0


def _add_document(tx: Tx, text: str) -> str:
    node_id = new_node_id()
    row = {
        "id": node_id,
        "tenant_id": _TENANT,
        "external_id": f"{node_id}.txt",
        "profile": PROFILE,
        "media_type": "text/plain",
        "metadata": {},
        "fields": {},
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    added = tx.execute(sa.insert(nodes).values(row).returning(nodes.c.seq))
    body = {"seq": added.scalar_one(), "title": text.partition("\n")[0], "body": text}
    tx.execute(sa.insert(texts).values(body))
    return node_id


def _resume(number: int, chosen: random.Random) -> str:
    return "\n".join([f"Résumé no. {number} of {chosen.randint(1, 10**9)}", *_jobs(chosen)])


def _jobs(chosen: random.Random) -> Iterator[str]:
    for year in range(2024, 1996, -2):
        place, title = chosen.choice(_PLACES), chosen.choice(_TITLES)
        yield f"{title}, power station {chosen.randint(1, 9999)}, {place}, {year - 2} to {year}"
        first, second = chosen.sample(_SKILLS, 2)
        yield (
            f"Looked after {chosen.randint(2, 40)} turbines with {first} and {second}, led a team "
            f"of {chosen.randint(2, 20)}, and cut the time between two inspections by "
            f"{chosen.randint(2, 30)} hours."
        )
