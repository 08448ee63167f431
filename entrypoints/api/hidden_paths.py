"""Hides the paths of the server in what callers read of documents, jobs and runs.

Messages are stored whole, for operators: they may say where the server's files lie.
"""

from typing import Any

from penstock.settings import Settings, hide_paths

_MESSAGES = {"error", "error_message", "message", "paused_reason", "reason"}
_OF_NODES = ("extraction_error", "embedding_error")


def without_paths(settings: Settings, value: Any) -> Any:
    """Reports of runs, jobs and lines of a log, in dictionaries and lists, with no path in any
    message."""
    if isinstance(value, list):
        return [without_paths(settings, one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _hidden(settings, one) if name in _MESSAGES else without_paths(settings, one)
        for name, one in value.items()
    }


def node_without_paths(settings: Settings, node: dict[str, Any]) -> dict[str, Any]:
    """The same for a node, whose other values are its owner's own."""
    mine = {name: _hidden(settings, node[name]) for name in _OF_NODES}
    props = node["props"]
    shown = {name: mine[name] for name in _OF_NODES if name in props and props[name] == node[name]}
    return node | mine | {"props": props | shown}


def _hidden(settings: Settings, message: Any) -> Any:
    return hide_paths(message, settings.folders) if isinstance(message, str) else message
