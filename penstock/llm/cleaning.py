"""Tidying the fields of an answer: lists without doubles, years as a number or a range."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.llm.profiles import Profile

_YEARS_LIMIT = 70
_NUMBER = r"(\d{1,2}(?:\.\d+)?)"
_UNIT = r"\s*\+?\s*(?:years?|yrs?\.?)?"
_RANGE = re.compile(rf"{_NUMBER}\s*(?:-|–|—|to)\s*{_NUMBER}{_UNIT}", re.IGNORECASE)
_SINGLE = re.compile(rf"{_NUMBER}{_UNIT}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Caps:
    """How many items of each list are kept."""

    primary_skills: int = 12
    recent_job_titles: int = 3
    certifications: int = 10
    industries: int = 5

    def limit(self, field: str) -> int | None:
        """The most items `field` may hold; None means no limit."""
        limits = {
            "primary_skills": self.primary_skills,
            "skills": self.primary_skills,
            "recent_job_titles": self.recent_job_titles,
            "certifications": self.certifications,
            "industries": self.industries,
        }
        return limits.get(field)


def clean_fields(profile: Profile, fields: Mapping[str, Any], caps: Caps) -> dict[str, Any]:
    """The profile's own fields, tidied; what the profile does not know is dropped."""
    known = profile.schema.model_fields
    return {name: _clean(name, value, caps) for name, value in fields.items() if name in known}


def clean_list(values: Iterable[object], limit: int | None = None) -> list[str]:
    """Trimmed, each spelled as it came first, then capped."""
    first: dict[str, str] = {}
    for value in values:
        if isinstance(value, str) and (item := " ".join(value.split())):
            first.setdefault(item.casefold(), item)
    return list(first.values())[:limit]


def clean_years(value: object) -> int | float | str | None:
    """A plausible number of years, or a range kept as text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _plausible(value)
    if not isinstance(value, str):
        return None
    if found := _RANGE.fullmatch(value.strip()):
        return _clean_range(found[1], found[2])
    single = _SINGLE.fullmatch(value.strip())
    return _plausible(float(single[1])) if single else None


def mend_text(text: str) -> str:
    """Without what no database takes: NUL, and half a surrogate pair as broken PDFs give."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def _clean_range(low: str, high: str) -> int | float | str | None:
    ordered = _plausible(float(low)) is not None and float(low) < float(high) <= _YEARS_LIMIT
    return f"{low}-{high}" if ordered else _plausible(float(high))


def _plausible(years: float) -> int | float | None:
    if not 0 <= years <= _YEARS_LIMIT:
        return None
    return int(years) if years == int(years) else years


def _clean(name: str, value: Any, caps: Caps) -> Any:
    if name == "years_experience_total":
        return clean_years(value)
    if isinstance(value, list | tuple):
        return _clean_items(value, caps.limit(name))
    if isinstance(value, str):
        return value.strip() or None
    return value


def _clean_items(values: Sequence[Any], limit: int | None) -> list[Any]:
    # Only texts have spellings; the records and numbers of an own profile stay as they are.
    if all(value is None or isinstance(value, str) for value in values):
        return clean_list(values, limit)
    return list(values)[:limit]
