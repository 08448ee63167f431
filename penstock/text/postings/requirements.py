"""Where a job description stops telling about the job and starts to ask of the applicant."""

import re

_HEADING_CHARS = 80
# Headings that name requirements go before those that only speak to the applicant.
_ASKING = (
    re.compile(r"requirement|qualification|^required|must.have", re.IGNORECASE),
    re.compile(
        r"what you.{0,12}(bring|need|have)|who you are|you (may |might )?(have|bring)\b"
        r"|look(ing)? for\b|talk to you if|you.{0,4}ll (have|bring|need)|about you\b"
        r"|your (profile|skills|experience|background)|ideal candidate|great fit|skills\b",
        re.IGNORECASE,
    ),
)
_BONUS = re.compile(r"nice.to.have|preferred|bonus|plus(es)?\b|desired", re.IGNORECASE)
_OTHER = re.compile(
    r"benefit|perks|we offer|what you.{0,6}get|compensation|salary|pay range|about (us|the)\b"
    r"|equal.opportunity|how to apply|our (culture|values|team)|responsibilit|what you.{0,4}ll do",
    re.IGNORECASE,
)


def split_requirements(description: str) -> tuple[str, str]:
    """(the description without its requirements, the requirements); the latter may be empty."""
    lines = description.split("\n")
    headings = [i for i, line in enumerate(lines[:-1]) if _is_heading(line)]
    asking = (i for words in _ASKING for i in headings if words.search(lines[i]))
    start = next(asking, None)
    if start is None:
        return description, ""
    end = next((i for i in range(start + 1, len(lines)) if _ends(lines[i])), len(lines))
    rest = [*lines[:start], *lines[end:]]
    return "\n".join(rest).strip(), "\n".join(lines[start:end]).strip()


def _ends(line: str) -> bool:
    if _is_heading(line):
        return bool(_OTHER.search(line)) and not _BONUS.search(line)
    # After the list of demands, a long paragraph is the company talking about itself again.
    return not line.startswith("- ") and len(line) > 3 * _HEADING_CHARS


def _is_heading(line: str) -> bool:
    text = line.strip()
    return 0 < len(text) <= _HEADING_CHARS and not text.startswith("- ") and text[-1] not in ".,;"
