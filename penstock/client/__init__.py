"""The HTTP API from Python."""

from penstock.client.client import Client
from penstock.client.errors import ApiError, Busy
from penstock.client.values import AddedNode, BatchOutcome, Node, SearchHit

__all__ = ["AddedNode", "ApiError", "BatchOutcome", "Busy", "Client", "Node", "SearchHit"]
