"""Keys of results: the same key, the same result. They name what was read, and what read it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from penstock.documents import STRUCTURE
from penstock.llm.profiles import profile_named, profile_names


def text_key(
    tenant_id: str,
    content: str,
    name: str,
    media_type: str | None,
    source: str | None,
    extractors: str,
) -> str:
    """Of a text. `content` is the hash of the bytes; name and type settle what they are when the
    bytes alone do not; `extractors` names those of the user's own."""
    return _hash(tenant_id, content, name, media_type, source, extractors)


def fields_key(
    tenant_id: str,
    version: str,
    profile: str,
    models: str,
    title: str | None,
    metadata: Mapping[str, Any],
    text: str,
) -> str:
    """Of fields. `version` is the `extraction_version`, `models` the chain that answers."""
    # A profile that is no longer known is refused by the extractor, document by document.
    schema = profile_named(profile).schema_hash if profile in profile_names() else "unknown"
    said = {name: value for name, value in metadata.items() if name not in STRUCTURE}
    return _hash(tenant_id, version, schema, models, title, said, text)


def vector_key(identity: str, text: str) -> str:
    """Of a vector, which is the same for all tenants; `text` is what the model reads of it."""
    return hashlib.sha256(f"{identity}\n{text}".encode()).hexdigest()


def _hash(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
