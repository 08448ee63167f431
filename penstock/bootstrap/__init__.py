"""The one place where settings become working parts."""

from penstock.bootstrap.app import App, ensure_vector_index
from penstock.bootstrap.opening import open_app
from penstock.bootstrap.rules import retry_rules

__all__ = ["App", "ensure_vector_index", "open_app", "retry_rules"]
