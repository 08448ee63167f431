"""Files, sent as they are."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, UploadFile

from entrypoints.api.deps import AppDep, Writer, tenant_of
from entrypoints.api.problems import Problem, documented
from penstock.app import App
from penstock.crawl.files import extension_for
from penstock.crawl.rawstore import UPLOADS, RawStore
from penstock.errors import DocumentFault, Overloaded, ServiceError, UsageError
from penstock.intake.nodes import NewNode, StoredPayload
from penstock.llm.profiles import profile_named
from penstock.store.database import new_node_id

router = APIRouter(tags=["nodes"])
# As words: a form's yes-or-no field that is missing would be taken for no.
Wish = Annotated[Literal["true", "false"] | None, Form()]
_WISHES = {"true": True, "false": False, None: None}
_REFUSALS = (Problem, UsageError, Overloaded, ServiceError, DocumentFault)


@router.post("/upload", responses=documented(413))
def upload(
    app: AppDep,
    principal: Writer,
    files: Annotated[list[UploadFile], File(description="At most PENSTOCK_UPLOAD_MAX_FILES")],
    tenant_id: Annotated[str | None, Form()] = None,
    profile: Annotated[str | None, Form()] = None,
    classes: Annotated[str | None, Form(description="Separated by commas")] = None,
    extract: Wish = None,
    extract_before_embed: Wish = None,
) -> dict[str, Any]:
    """Take files through text, extraction and embedding; one node each."""
    tenant = tenant_of(principal, tenant_id)
    most = app.settings.upload_max_files
    if len(files) > most:
        raise UsageError(
            f"an upload holds at most {most} files (PENSTOCK_UPLOAD_MAX_FILES), not {len(files)}"
        )
    if profile is not None:
        profile_named(profile)
    wanted = NewNode(
        classes=[name.strip() for name in (classes or "").split(",") if name.strip()],
        profile=profile,
        extract=_WISHES[extract],
        extract_before_embed=_WISHES[extract_before_embed],
    )
    with _kept_unless_refused(app.raw) as stored:
        for file in files:
            stored.append(_store(app, tenant, file))
        accepted = app.intake.accept(tenant, [replace(wanted, upload=one) for one in stored])
    results = [
        {"filename": one.name, "size": one.size, **node.as_json()}
        for one, node in zip(stored, accepted, strict=True)
    ]
    return {"created": len(results), "results": results}


@contextmanager
def _kept_unless_refused(raw: RawStore) -> Iterator[list[StoredPayload]]:
    """The files that the block stores. They are deleted again if their nodes are refused.

    After any other error the nodes may have been written all the same, and need their files.
    """
    stored: list[StoredPayload] = []
    try:
        yield stored
    except _REFUSALS:
        for one in stored:
            with suppress(DocumentFault):
                raw.delete(one.raw_key)
        raise


def _store(app: App, tenant_id: str, file: UploadFile) -> StoredPayload:
    """The file in the raw store. Its parser has spooled it to disk; one at a time is in memory."""
    name = (file.filename or "file").replace("\x00", "")
    most = app.settings.max_document_bytes
    content = file.file.read(most + 1)
    if len(content) > most:
        raise Problem(
            413,
            f"{name} is larger than the {most} bytes a document may have "
            "(PENSTOCK_MAX_DOCUMENT_BYTES)",
        )
    extension = extension_for(name, file.content_type)
    key = app.raw.put(tenant_id, UPLOADS, f"{new_node_id()}/{name}", content, extension)
    digest = hashlib.sha256(content).hexdigest()
    return StoredPayload(key, name, len(content), file.content_type, digest)
