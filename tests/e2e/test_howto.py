"""The Python of the README and the how-to pages runs as it stands."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fpdf import FPDF

from penstock.local.processes import free_port
from tests.e2e.commands import CommandLine
from tests.pages import ROOT

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return _BLOCK.findall((ROOT / page).read_text())


def make_pdf(path: Path, text: str) -> None:
    pdf = FPDF()
    pdf.add_page()
    pdf.set_font("Helvetica")
    pdf.write(text=text)
    pdf.output(str(path))


def run(code: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    script = folder / "example.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("README.md", "Mills grind corn"),
        ("docs/howto/embed.md", "Francis turbines suit medium heads"),
        ("docs/howto/models.md", "RateLimitError 0.1"),
        ("docs/howto/api.md", "ready rules\n[True]"),
        ("docs/howto/profiles.md", "'total': 99.5"),
        ("docs/howto/extractors.md", "started\nfull load {'lines': 2}"),
        ("docs/howto/embedders.md", "misspelt 0.69, something else 0.00"),
    ],
)
def test_examples_run_one_after_the_other(page: str, said: str, tmp_path: Path) -> None:
    make_pdf(tmp_path / "paper.pdf", "Mills grind corn")
    # A port of its own: another run of the tests may be at the same page.
    port = str(free_port())
    found = [code.replace("/path/to/", "").replace("8765", port) for code in blocks(page)]
    assert found
    told = [run(code, tmp_path) for code in found]
    assert [done.returncode for done in told] == [0] * len(found), told
    assert said in told[0].stdout


def test_the_embedder_of_the_page_works_in_flows_and_search_and_gives_way_to_another(
    penstock: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "embedder.py").write_text(blocks("docs/howto/embedders.md")[0])
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "turbine.txt").write_text("The hydraulic turbine of the mill in Ulm. " * 5)
    (documents / "report.txt").write_text("An annual report about money and people. " * 5)
    own = replace(penstock, settings={"EMBEDDING_BACKEND": "./embedder.py:Trigrams"})
    later = replace(penstock, settings={"EMBEDDING_BACKEND": "hash,./embedder.py:Trigrams"})
    search = ("search", "hydrolic turbin", "--mode", "vector", "--json")

    assert own.run("ingest", documents).code == 0
    assert titles(own.run(*search).json)[0] == "turbine.txt"
    assert titles(later.run(*search).json)[0] == "turbine.txt", "still by the older vectors"
    moved = later.run("backfill", "--reason", "vectors", "--all-tenants")
    assert moved.code == 0, moved.err
    assert later.run("status", "--json").json["vectors"]["active"] == "hash/words@64"


def titles(hits: list[dict[str, str]]) -> list[str]:
    return [hit["title"] for hit in hits]
