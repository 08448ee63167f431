"""The Python of the how-to pages runs as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.commands import ROOT

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return _BLOCK.findall((ROOT / "docs" / "howto" / page).read_text())


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
        ("embed.md", "Francis turbines suit medium heads"),
        ("extractors.md", "started\nfull load {'lines': 2}"),
    ],
)
def test_examples_run_one_after_the_other(page: str, said: str, tmp_path: Path) -> None:
    found = blocks(page)
    assert found
    told = [run(code, tmp_path) for code in found]
    assert [done.returncode for done in told] == [0] * len(found), told
    assert said in told[0].stdout
