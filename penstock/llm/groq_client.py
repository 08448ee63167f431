"""The one factory of Groq clients."""

from typing import TYPE_CHECKING

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

    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    hooks = {"request": [_without_own_prefix]} if base_url and _is_complete(base_url) else {}
    return Groq(
        api_key=api_key or _NO_KEY,
        base_url=base_url,
        timeout=timeout_seconds,
        max_retries=0,
        http_client=httpx.Client(limits=limits, timeout=timeout_seconds, event_hooks=hooks),
    )


def _is_complete(base_url: str) -> bool:
    return base_url.rstrip("/").endswith("/v1")


def _without_own_prefix(request: "httpx.Request") -> None:
    path = request.url.path.replace(f"/v1{_OWN_PREFIX}", "/v1/", 1)
    request.url = request.url.copy_with(path=path)
