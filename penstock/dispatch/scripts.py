"""The Lua scripts: each happens in Redis at one instant, or not at all."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redis import Redis


def run_script(client: "Redis", name: str, arguments: Sequence[str | int]) -> Any:
    return client.register_script(_read_script(name))(args=arguments)


@cache
def _read_script(name: str) -> str:
    folder = files(__package__).joinpath("lua")
    parts = (folder.joinpath(f"{part}.lua") for part in ("mirror", name))
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)
