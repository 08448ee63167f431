"""The one factory of Groq clients."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from groq import Groq


def build_groq_client(api_key: str, base_url: str | None, timeout_seconds: float = 60.0) -> "Groq":
    """The official client. Its own retries are off: the retry policy is ours."""
    from groq import Groq

    return Groq(api_key=api_key, base_url=base_url, timeout=timeout_seconds, max_retries=0)
