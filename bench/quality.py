"""Evaluates the offline rules on the labelled documents that come with Penstock, and writes
docs/quality.json and the tables of docs/quality.md: `python -m bench.quality [--write-only]`.

Every number of that page comes from here. Ends with 1 when a target of the held-out documents was
missed.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.figures import Figure
from bench.performance import ROOT, Circumstances, describe_circumstances, fill_blocks
from penstock.app import open_app
from penstock.evaluation.evaluation import evaluate
from penstock.evaluation.gold import read_gold
from penstock.evaluation.page import describe_setup, figures_markdown
from penstock.settings import ExtractionSettings, load_settings

RECORD = ROOT / "docs" / "quality.json"
PAGE = ROOT / "docs" / "quality.md"
SUMMARY = "summary"
console = Console(highlight=False, soft_wrap=True)

# Each target: the documents, the profile, the field, what is looked at, and what is wanted.
_TARGETS = (
    ("postings", "job_posting", "description + requirements", "mean_soft_f1", 0.90),
    ("postings", "job_posting", "description + requirements", "worst_soft_f1", 0.60),
    ("resumes", "resume", "recent_job_titles", "any_right", 0.85),
    ("resumes", "resume", "recent_job_titles", "normalised precision", 0.85),
    ("resumes", "resume", "primary_skills", "normalised f1", 0.60),
    ("resumes", "resume", "primary_skills", "soft f1", 0.72),
    ("resumes", "resume", "years_experience_total", "soft recall", 0.85),
)
_WORDS = {
    "mean_soft_f1": "word F1, the mean of all documents",
    "worst_soft_f1": "word F1, the worst document",
    "any_right": "documents with a right one",
    "normalised precision": "precision",
    "normalised f1": "F1",
    "soft f1": "word F1",
    "soft recall": "documents where it is within one",
}

Record = Mapping[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write-only", action="store_true", help="write the tables of the record again"
    )
    if not parser.parse_args().write_only:
        taken = describe_circumstances(datetime.now(UTC).strftime("%Y-%m-%d %H:%M"))
        written = json.dumps(measure(taken), indent=1, ensure_ascii=False)
        RECORD.write_text(f"{written}\n", encoding="utf-8")
    record = read_record()
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    return 1 if any(one.met is False for one in targets(record)) else 0


def measure(taken: Circumstances) -> Record:
    """Evaluate all sets, lists whole."""
    evaluations: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-quality-") as folder:
        extraction = ExtractionSettings(backend="rules")
        with open_app(load_settings(home=Path(folder), extraction=extraction)) as app:
            for gold in read_gold([]):
                found = evaluate(app, gold, uncapped=True).as_json(documents=False)
                console.print(f"{gold.name}: mean score {found['score']}")
                evaluations[gold.name] = found
    return {"taken": asdict(taken), "evaluations": evaluations}


def read_record(path: Path = RECORD) -> Record:
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    return record


def targets(record: Record) -> list[Figure]:
    """What is wanted of the held-out documents."""
    return [_target(record, *one) for one in _TARGETS]


def _target(
    record: Record, gold: str, profile: str, field: str, figure: str, wanted: float
) -> Figure:
    dev, heldout = (
        _look_up(record["evaluations"][f"{gold}-{half}"]["fields"][profile][field], figure)
        for half in ("dev", "heldout")
    )
    what = f"`{field}` of {gold}: {_WORDS[figure]}"
    detail = f"{dev:.3f} where the rules were made"
    return Figure(f"{gold}.{field}.{figure}", what, heldout, "", wanted, detail=detail)


def _look_up(summary: Mapping[str, Any], figure: str) -> float:
    level, _, name = figure.rpartition(" ")
    return float((summary[level][name] if level else summary[name]) or 0.0)


def render(page: str, record: Record) -> str:
    """The page with its tables written anew, and its prose untouched."""
    return fill_blocks(page, lambda name: f"{_block(name, record)}\n")


def _block(name: str, record: Record) -> str:
    if name == SUMMARY:
        return _summary(Circumstances(**record["taken"]), targets(record))
    evaluation = record["evaluations"][name.replace("_", "-")]
    return f"{describe_setup(evaluation['setup'])}.\n\n{figures_markdown(evaluation)}"


def _summary(taken: Circumstances, figures: Sequence[Figure]) -> str:
    rows = [
        (one.what, one.shown_wanted, one.shown_value, one.verdict, one.detail) for one in figures
    ]
    head = ("what, of the held-out documents", "wanted", "measured", "", "beside")
    lines = [head, ("---",) * len(head), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"Measured {taken.shown}.\n\n{table}"


if __name__ == "__main__":
    sys.exit(main())
