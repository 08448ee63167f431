"""Which profile a document is extracted and embedded with, when nobody named one."""

from typing import Any

import sqlalchemy as sa

from penstock.llm.profiles import profile_for

_PAGE_PROFILE = "document"


def profile_of(node: sa.Row[Any], default: str) -> str:
    """The node's own profile, else by what its content says it is, else the default.

    A web page that does not say it is a posting is hardly ever what the default is for.
    """
    if node.profile:
        return str(node.profile)
    kind = node.metadata.get("schema_type")
    is_page = node.media_type == "text/html"
    return profile_for([kind] if kind else [], _PAGE_PROFILE if is_page else default)
