"""The résumé profile by rules."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from penstock.llm.extractor import Question
from penstock.llm.rules.answer import Answer
from penstock.llm.rules.certifications import find_certifications
from penstock.llm.rules.confidence import settle
from penstock.llm.rules.industries import find_industries
from penstock.llm.rules.layout import Line, Part, Reading
from penstock.llm.rules.roles import find_titles, is_title, tidy_title
from penstock.llm.rules.skills import SkillSet, find_skills
from penstock.llm.rules.years import DatedLine, count_years, dated_work

_HEADLINE_LINES = 6
_TELLING_PARTS = frozenset(
    {Part.SUMMARY, Part.SKILLS, Part.EXPERIENCE, Part.EDUCATION, Part.CERTIFICATIONS}
)
_SELF_DESCRIPTION = re.compile(
    r"\b(?:(?:am|was|as|been|serving as|promoted to|position of)\s+)(?:an?\s+|the\s+)?"
    r"((?:[\w/&+#-]+\s+){0,4}?[\w-]+)"
    r"(?=\s+(?:at|for|in|with|who|from|since|on|where|and|by)\b|[.,;\n]|\Z)",
    re.IGNORECASE,
)


def answer_resume(question: Question, reading: Reading, today: date) -> Answer:
    """The résumé fields a text supports."""
    dated = dated_work(reading, today)
    skills = find_skills(reading)
    titles, title_support = _recent_titles(reading, dated)
    years = count_years(reading, dated)
    fields = {
        "primary_skills": list(skills.names),
        "recent_job_titles": titles,
        "years_experience_total": years.value,
        "certifications": find_certifications(reading) or None,
        "industries": find_industries(reading) or None,
    }
    supports = {
        "skills": (0.35, _skill_support(skills)),
        "titles": (0.30, title_support),
        "years": (0.20, years.support),
        "structure": (0.15, min(1.0, len(reading.parts & _TELLING_PARTS) / 3)),
    }
    usable = not question.profile.missing(fields)
    return Answer(fields, settle(supports, reading.text, usable=usable))


def _skill_support(skills: SkillSet) -> float:
    enough = min(1.0, len(skills.names) / 6)
    return enough if skills.listed >= 3 else 0.7 * enough


def _recent_titles(reading: Reading, dated: Sequence[DatedLine]) -> tuple[list[str], float]:
    """Titles, newest first, from the most telling place that holds any."""
    if found := _dated_titles(reading, dated):
        return found, 0.6 + 0.4 * min(1.0, len(found) / len(dated))
    undated = [line for line in reading.within(Part.EXPERIENCE) if not line.bullet]
    if found := _titles_of(undated):
        return found, 0.6
    if found := _titles_of(reading.within(Part.HEAD)[:_HEADLINE_LINES]):
        return found[:1], 0.5
    return list(_described_titles(reading.text)), 0.35


def _dated_titles(reading: Reading, dated: Sequence[DatedLine]) -> list[str]:
    used: set[int] = set()
    found: list[tuple[tuple[int, int], str]] = []
    for entry in dated:
        for index in _places_for_title(reading.lines, entry.index, used):
            title = next(iter(_titles_without_dates(reading.lines[index], entry)), None)
            if title:
                used.add(index)
                found.append((max(span.newness for span in entry.spans), title))
                break
    # The sort is stable: jobs that end together stay in the order of the text.
    return [title for _, title in sorted(found, key=lambda job: job[0], reverse=True)]


def _places_for_title(lines: Sequence[Line], index: int, used: set[int]) -> Iterator[int]:
    """The dated line itself, then its neighbours that can belong to it."""
    yield index
    for place in (index - 1, index + 1, index - 2, index + 2):
        if 0 <= place < len(lines) and place not in used:
            near = lines[place]
            if near.part is lines[index].part and not near.bullet and not near.heading:
                yield place


def _titles_without_dates(line: Line, entry: DatedLine) -> Iterator[str]:
    text = line.text
    for span in entry.spans:
        text = text.replace(span.text, " | ")
    return find_titles(text)


def _titles_of(lines: Iterable[Line]) -> list[str]:
    return [title for line in lines for title in find_titles(line.text)]


def _described_titles(text: str) -> Iterator[str]:
    for match in _SELF_DESCRIPTION.finditer(text):
        title = match[1].strip()
        capitalised = title[:1].upper() + title[1:]
        if is_title(capitalised):
            yield tidy_title(capitalised)
