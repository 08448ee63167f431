"""A real S3 server on this machine, and the answers that it would not give by itself."""

import io
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.crawl.s3 import S3Access

SECRET = "hidden-secret-access-key"


@contextmanager
def running_s3() -> Iterator[S3Access]:
    """How to reach a server of this process, which ends with the block."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Access(f"http://{host}:{port}", "us-east-1", "hidden-key", SECRET)
    finally:
        server.stop()


@dataclass(frozen=True)
class Reply:
    """An answer as it would come from S3."""

    status: int = 200
    code: str = ""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def content(self) -> bytes:
        # Servers echo what they were given.
        message = f"{self.code}: hidden-key {SECRET} is not good"
        error = f"<Error><Code>{self.code}</Code><Message>{message}</Message></Error>"
        return error.encode() if self.code else self.body


def script(client: Any, operation: str, *replies: Reply | Exception | None) -> list[str]:
    """The next answers to an operation, in place of the server's; None is the server's own.

    Returns a list that grows by the URL of each request.
    """
    from botocore.awsrequest import AWSResponse

    left, asked = list(replies), list[str]()

    def answer(request: Any, **_: Any) -> Any:
        asked.append(request.url)
        reply = left.pop(0) if left else None
        if isinstance(reply, Exception):
            raise reply
        if reply is None:
            return None
        return AWSResponse(request.url, reply.status, dict(reply.headers), _Raw(reply.content()))

    client.meta.events.register(f"before-send.s3.{operation}", answer, unique_id=operation)
    return asked


def unscript(client: Any) -> None:
    """Let the server answer by itself again."""
    for operation in client.meta.method_to_api_mapping.values():
        client.meta.events.unregister(f"before-send.s3.{operation}", unique_id=operation)


def fill(bucket: str, keys: Iterable[str]) -> None:
    """Put objects straight into the server of this process: requests take 10 ms each."""
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for key in keys:
        backend.put_object(bucket, key, b"x")


class _Raw(io.BytesIO):
    """What botocore reads an answer from."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()
