"""Fits how often the offline rules are right, by labelled documents, and writes the curves.

    python -m bench.calibration [GOLD…]

What GOLD may be is that of `penstock eval`; by default the half that the rules are made with.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault
from penstock.evaluation.comparison import is_right, kind_of, values_of
from penstock.evaluation.gold import SETS, GoldRecord, read_gold
from penstock.llm import calibration
from penstock.llm.answers import UNCAPPED, clean_fields
from penstock.llm.calibration import fit_curve
from penstock.llm.profiles import profile_named
from penstock.llm.prompts import MAX_INPUT_CHARS, PreparedRequest
from penstock.rules.extractor import MODEL, answer_by_rules
from penstock.text.extract import extract_text

# A curve through fewer values would say more about them than about the rules.
_LEAST_VALUES = 8

Judged = tuple[float, float]
console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gold", nargs="*", default=[f"{name}-dev" for name in SETS])
    judged = judge_sets(parser.parse_args().gold)
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


def judge_sets(names: Sequence[str]) -> dict[str, list[Judged]]:
    """By `profile.field`: how sure the rules were of each value, and whether it is right."""
    judged: defaultdict[str, list[Judged]] = defaultdict(list)
    for gold in (record for found in read_gold(names) for record in found.records):
        for name, pair in judge_document(gold):
            judged[f"{gold.profile}.{name}"].append(pair)
    return judged


def judge_document(gold: GoldRecord) -> Iterator[tuple[str, Judged]]:
    if gold.profile is None:
        return
    try:
        text = _read(gold)
    except DocumentFault:
        return
    profile = profile_named(gold.profile)
    metadata = {**text.metadata, **gold.metadata}
    prepared = PreparedRequest(profile, text.text[:MAX_INPUT_CHARS], text.title, metadata)
    found = answer_by_rules(prepared, None)
    for name, value in clean_fields(profile, found.fields, UNCAPPED).items():
        if name in gold.fields:
            raw, kind = found.supports.get(name, found.confidence), kind_of(profile, name)
            for one in values_of(value):
                yield name, (raw, float(is_right(kind, one, gold.fields[name])))


def _read(gold: GoldRecord) -> ExtractedText:
    if gold.file is None:
        return ExtractedText(gold.text or "", gold.title)
    return extract_text(RawDocument(gold.url or gold.file.name, gold.file.read_bytes()))


def _mean(pairs: Sequence[Judged]) -> float:
    return sum(right for _, right in pairs) / len(pairs)


if __name__ == "__main__":
    main()
