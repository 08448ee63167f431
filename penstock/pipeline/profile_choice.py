"""Which profile a document is extracted with: the one that was asked for, else the one of its
class, else that of the settings, else the one that its content shows."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from penstock.documents import ProfileBasis
from penstock.llm.profiles import ProfileChoice, choose_by_class
from penstock.rules.detection import detect_profile
from penstock.store.schema import nodes, sources, texts

# Earlier versions took every file for one, without looking.
_GUESSED = "resume"
_OF_NODE = ("profile", "profile_basis", "profile_reason", "metadata", "given")
CHOICE_COLUMNS = (
    *(nodes.c[name] for name in _OF_NODE),
    texts.c.title,
    texts.c.body,
    sources.c.settings["profile"].as_string().label("source_profile"),
)
"""What `choose_profile` reads of nodes joined with their texts and sources."""


def choose_profile(asked: str | None, row: sa.Row[Any], setting: str | None) -> ProfileChoice:
    """The profile for a node: `asked` is what its run names, `setting` is EXTRACTION_PROFILE."""
    if asked is not None:
        return ProfileChoice(asked, ProfileBasis.ASKED, "named by the run")
    if row.profile_basis == ProfileBasis.ASKED:
        return ProfileChoice(row.profile, ProfileBasis.ASKED, row.profile_reason)
    if row.source_profile:
        return ProfileChoice(row.source_profile, ProfileBasis.ASKED, "named by its source")
    if by_class := choose_by_class(_classes(row), setting):
        return by_class
    if row.profile and row.profile_basis is None and row.profile != _GUESSED:
        return ProfileChoice(row.profile, ProfileBasis.ASKED, "chosen by an earlier version")
    return choose_by_content((), None, row.body or "", row.title)


def choose_by_content(
    classes: Sequence[str], setting: str | None, text: str, title: str | None
) -> ProfileChoice:
    """For a text of which nothing names a profile but, maybe, its classes and the settings."""
    if by_class := choose_by_class(classes, setting):
        return by_class
    found = detect_profile(text, title)
    return ProfileChoice(found.profile, ProfileBasis.DETECTED, found.reason)


def _classes(row: sa.Row[Any]) -> list[str]:
    """As its sender has them, then the type that a web page states about itself."""
    stated = row.metadata.get("schema_type")
    return [
        *((row.given or {}).get("classes") or ()),
        *([stated] if isinstance(stated, str) else ()),
    ]
