"""The architecture page names what there is: every package has its line, every file exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/architecture.md").read_text()
TOP_LEVEL = ("penstock/", "flows/", "tasks/", "blocks/", "deployments/", "entrypoints/")
MOST_FILES_OF_THE_WALK = 40


def files_named_in(text: str) -> set[Path]:
    names = re.findall(r"`([a-z0-9_/]+\.py)", text)
    folders = [ROOT if name.startswith(TOP_LEVEL) else ROOT / "penstock" for name in names]
    return {folder / name for folder, name in zip(folders, names, strict=True)}


def test_every_file_that_the_page_names_exists() -> None:
    assert [file for file in files_named_in(PAGE) if not file.is_file()] == []


def test_the_walk_of_a_document_opens_at_most_forty_files() -> None:
    walk = PAGE.partition("## The walk of a document")[2].partition("Beside the path")[0]
    assert 30 < len(files_named_in(walk)) <= MOST_FILES_OF_THE_WALK


def test_every_package_has_its_line_on_the_map() -> None:
    rows = PAGE.partition("## The packages of")[2].partition("## The walk")[0]
    named = set(re.findall(r"`([a-z_]+)`", rows))
    entries = (ROOT / "penstock").iterdir()
    present = {
        entry.stem
        for entry in entries
        if entry.suffix == ".py" or (entry.is_dir() and (entry / "__init__.py").is_file())
    }
    assert present - {"__init__"} <= named


def test_the_ingest_flow_stays_short_enough_to_read_at_a_glance() -> None:
    assert len((ROOT / "flows/ingest.py").read_text().splitlines()) <= 80
