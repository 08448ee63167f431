"""The one factory of Groq clients."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    import httpx
    from groq import Groq

# What the client puts between its base address and the endpoint.
_OWN_PREFIX = "/openai/v1/"
# Servers that ask for no key get this one; the client insists on some.
_NO_KEY = "none"


def build_groq_client(
    api_key: str | None,
    base_url: str | None,
    timeout_seconds: float = 60.0,
    connections: int = 100,
) -> "Groq":
    """The official client. Its own retries are off: the retry policy is ours.

    A base address that ends in `/v1`, as Ollama, vLLM and llama.cpp have it, is used as it stands.
    """
    import httpx
    from groq import Groq

    from penstock.llm.deadline import Deadline, note_start

    base_url = _checked_address(base_url)
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    is_complete = base_url is not None and base_url.endswith("/v1")
    hooks: dict[str, list[Callable[..., Any]]] = {
        "request": [note_start, *([_without_own_prefix] if is_complete else [])],
        "response": [Deadline(timeout_seconds)],
    }
    return Groq(
        api_key=_checked_key(api_key),
        base_url=base_url,
        timeout=timeout_seconds,
        max_retries=0,
        http_client=httpx.Client(limits=limits, timeout=timeout_seconds, event_hooks=hooks),
    )


def _checked_key(api_key: str | None) -> str:
    """The key as a header can carry it: the error about one that cannot would show the key."""
    key = (api_key or "").strip() or _NO_KEY
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError(
            "GROQ_API_KEY holds characters that no key has: copy it again, without anything around"
        )
    return key


def _checked_address(base_url: str | None) -> str | None:
    address = (base_url or "").strip().rstrip("/")
    if address and not address.lower().startswith(("http://", "https://")):
        raise ConfigurationError(
            "EXTRACTION_BASE_URL is no web address: begin it with http:// or https://"
        )
    return address or None


def _without_own_prefix(request: "httpx.Request") -> None:
    path = request.url.path.replace(f"/v1{_OWN_PREFIX}", "/v1/", 1)
    request.url = request.url.copy_with(path=path)
