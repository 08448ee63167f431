"""Continuous integration runs what the README tells people to run."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]


def commands() -> set[str]:
    return {step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step}


def uses(job: dict[str, Any]) -> list[str]:
    return [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step]


def test_it_runs_the_two_commands_of_the_readme() -> None:
    page = (ROOT / "README.md").read_text()
    section = page.partition("## Two commands")[2].partition("```bash\n")[2].partition("```")[0]
    promised = {line.partition("#")[0].strip() for line in section.splitlines()}
    assert len(promised) == 2
    assert promised <= commands()


def test_it_runs_what_the_contributors_page_and_the_script_say() -> None:
    for page in ("CONTRIBUTING.md", ".ci/run"):
        said = re.findall(r"make (?:check|test)\b(?!-)", (ROOT / page).read_text())
        assert set(said) == {"make check", "make test"}
    assert {"make check", "make test"} <= commands()


def test_every_command_of_make_is_a_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\S+)$", "\n".join(commands()), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_job_has_a_clean_checkout_a_cache_and_a_time_limit() -> None:
    for name, job in JOBS.items():
        assert job["timeout-minutes"] <= 60, name
        assert uses(job)[0] == "actions/checkout", name
        assert "actions/cache" in uses(job), name


def test_it_can_change_nothing_in_the_repository_and_uses_a_python_that_is_supported() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    versions = {
        step["with"]["python-version"]
        for job in JOBS.values()
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/setup-python")
    }
    required = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert required is not None
    assert versions == {required.group(1)}
