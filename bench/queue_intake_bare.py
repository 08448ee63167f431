"""The floor of `POST /nodes`: FastAPI and one transaction for each request, written by hand.

One INSERT of the node, one of its work item, one commit, on a pool of connections. There is no
authentication, no back-pressure, no idempotency, no text for the search and no problem document.
"""

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import uvicorn
from fastapi import FastAPI, Request
from pydantic import BaseModel

DSN = "PENSTOCK_DSN"
CONNECTIONS = 8
_NODE = (
    "INSERT INTO nodes (id, tenant_id, external_id, media_type, metadata, fields, given, "
    "embedding_status, created_at, updated_at) "
    "VALUES (%s, 'default', %s, 'text/plain', '{}', '{}', %s, 'queued', %s, %s)"
)
_ITEM = (
    "INSERT INTO work_items (tenant_id, node_id, stage, status, priority, attempts, rescues, "
    "run_at, payload, created_at, updated_at) "
    "VALUES ('default', %s, 'embed', 'pending', 0, 0, 0, %s, '{}', %s, %s) RETURNING id"
)


class NodeIn(BaseModel):
    """What the bench sends."""

    classes: list[str] = []
    props: dict[str, Any] = {}


class NodeOut(BaseModel):
    """The answer."""

    id: str
    embedding_status: str
    job_id: int


@asynccontextmanager
async def connected(app: FastAPI) -> AsyncIterator[None]:
    address = os.environ[DSN].replace("+psycopg", "")
    idle: asyncio.LifoQueue[psycopg.AsyncConnection[Any]] = asyncio.LifoQueue()
    for _ in range(CONNECTIONS):
        idle.put_nowait(await psycopg.AsyncConnection.connect(address))
    app.state.idle = idle
    yield
    while not idle.empty():
        await idle.get_nowait().close()


app = FastAPI(lifespan=connected)


@app.get("/readyz")
async def ready() -> dict[str, str]:
    return {"status": "ready"}


@app.post("/nodes")
async def create_node(body: NodeIn, request: Request) -> NodeOut:
    node_id, now = str(uuid.uuid4()), datetime.now(UTC)
    idle = request.app.state.idle
    connection = await idle.get()
    try:
        given = json.dumps(body.model_dump())
        await connection.execute(_NODE, (node_id, node_id, given, now, now))
        made = await connection.execute(_ITEM, (node_id, now, now, now))
        (job_id,) = await made.fetchone()
        await connection.commit()
    finally:
        idle.put_nowait(connection)
    return NodeOut(id=node_id, embedding_status="queued", job_id=job_id)


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="info", access_log=False)
