"""Fits how often the offline rules are right, by labelled documents, and writes the curves.

    python -m bench.calibration GOLD.jsonl…

Each line of a gold file has `profile`, `fields`, and `text` or the name of a `file` beside it.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rapidfuzz import fuzz
from rich.console import Console

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault
from penstock.llm import calibration
from penstock.llm.answers import UNCAPPED, clean_fields
from penstock.llm.calibration import fit_curve
from penstock.llm.profiles import profile_named
from penstock.llm.prompts import MAX_INPUT_CHARS, PreparedRequest
from penstock.rules.extractor import MODEL, answer_by_rules
from penstock.text.extract import extract_text

# How alike a value and a labelled one are to count as the same, of 100; paragraphs differ more.
_SAME, _SAME_PARAGRAPH = 85.0, 75.0
_PARAGRAPH_CHARS = 120
_YEARS_OFF = 1.0
# A curve through fewer values would say more about them than about the rules.
_LEAST_VALUES = 8

Judged = tuple[float, float]
console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gold", nargs="+", type=Path)
    judged = judge_files(parser.parse_args().gold)
    curves = {
        name: fit_curve(pairs)
        for name, pairs in sorted(judged.items())
        if len(pairs) >= _LEAST_VALUES
    }
    for name, pairs in sorted(judged.items()):
        right = f"{_mean(pairs):.2f} right"
        console.print(f"{name:38} {len(pairs):5} values, {right}  {curves.get(name, '–')}")
    target = Path(calibration.__file__).with_name(calibration.FILE)
    target.write_text(json.dumps({MODEL: curves}, indent=1) + "\n", encoding="utf-8")


def judge_files(paths: Sequence[Path]) -> dict[str, list[Judged]]:
    """By `profile.field`: how sure the rules were of each value, and whether it is right."""
    judged: defaultdict[str, list[Judged]] = defaultdict(list)
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            gold = json.loads(line)
            for name, pair in judge_document(gold, path.parent):
                judged[f"{gold['profile']}.{name}"].append(pair)
    return judged


def judge_document(gold: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Judged]]:
    try:
        text = _read(gold, folder)
    except DocumentFault:
        return
    profile = profile_named(gold["profile"])
    body = text.text[:MAX_INPUT_CHARS]
    prepared = PreparedRequest(profile, body, text.title, text.metadata)
    today = date.fromisoformat(gold["date"]) if gold.get("date") else None
    found = answer_by_rules(prepared, today)
    fields = clean_fields(profile, found.fields, UNCAPPED)
    for name, value in fields.items():
        values = value if isinstance(value, list) else [value]
        if value is None or name not in gold["fields"]:
            continue
        labelled = gold["fields"][name]
        labels = labelled if isinstance(labelled, list) else [labelled]
        raw = found.supports.get(name, found.confidence)
        yield from ((name, (raw, float(is_right(one, labels)))) for one in values)


def _read(gold: Mapping[str, Any], folder: Path) -> ExtractedText:
    if "text" in gold:
        return ExtractedText(gold["text"], gold.get("title"))
    return extract_text(RawDocument(gold["file"], (folder / gold["file"]).read_bytes()))


def is_right(value: Any, labels: Sequence[Any]) -> bool:
    """Whether one of the labels means the same."""
    return any(label is not None and _same(value, label) for label in labels)


def _same(value: Any, label: Any) -> bool:
    one, other = _first_number(value), _first_number(label)
    if isinstance(label, int | float):
        return one is not None and other is not None and abs(one - other) <= _YEARS_OFF
    left, right = _plain(value), _plain(label)
    limit = _SAME if len(right) < _PARAGRAPH_CHARS else _SAME_PARAGRAPH
    return fuzz.token_sort_ratio(left, right) >= limit


def _plain(value: Any) -> str:
    return " ".join(re.findall(r"[^\W_]+[+#]*", str(value).casefold()))


def _first_number(value: Any) -> float | None:
    found = re.search(r"\d+(?:\.\d+)?", str(value))
    return float(found[0]) if found else None


def _mean(pairs: Sequence[Judged]) -> float:
    return sum(right for _, right in pairs) / len(pairs)


if __name__ == "__main__":
    main()
