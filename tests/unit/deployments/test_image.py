"""The image, as far as it can be checked without building it."""

import re
import shutil
from pathlib import Path

import pytest

from tests.docker_context import Ignored, context_files

ROOT = Path(__file__).parents[3]
IGNORED = Ignored((ROOT / ".dockerignore").read_text())
# What a checkout that is in use holds, beside what was committed.
PRIVATE = (
    ".env",
    ".env.production",
    "deployments/.env",
    ".penstock/penstock.db",
    ".penstock/prefect.auth",
    ".penstock/postgres.password",
    "penstock/.penstock/raw/ab/abcdef",
    ".git/config",
    ".venv/bin/python",
    "penstock-backup.db",
    "penstock/copy.db",
    "deployments/penstock.dump",
    ".mypy_cache/3.11/cache.json",
    "penstock/__pycache__/app.cpython-311.pyc",
    "my-cvs/agnes.pdf",
    "notes.txt",
    ".ssh/id_ed25519",
    "tests/conftest.py",
    "bench/report.py",
)
PACKAGES = ("penstock", "flows", "tasks", "blocks", "deployments", "entrypoints")


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile and its arguments, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(one, " ".join(rest.split())) for one, _, rest in (x.partition(" ") for x in lines)]


def place(wanted: tuple[str, str]) -> int:
    return instructions().index(wanted)


@pytest.mark.parametrize("path", PRIVATE)
def test_what_a_used_checkout_holds_is_not_let_through(path: str) -> None:
    assert not IGNORED.lets_through(path)


def test_a_used_checkout_gives_the_same_files_as_a_fresh_one(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".dockerignore", tmp_path)
    for path in (*PRIVATE, "penstock/app.py", "uv.lock"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert set(context_files(tmp_path)) == {"penstock/app.py", "uv.lock"}


def test_what_the_packages_hold_is_let_through() -> None:
    found = set(context_files(ROOT))
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert path.relative_to(ROOT).as_posix() in found
    for name in ("pyproject.toml", "uv.lock", "README.md", "LICENSE", "prefect.yaml"):
        assert name in found


@pytest.mark.parametrize(
    ("lines", "path", "passes"),
    [
        ("*\n!a", "a/b.py", True),
        ("*\n!a", "b/a", False),
        ("*\n!a\n**/*.db", "a/b/c.db", False),
        ("**/.env*", ".env.local", False),
        ("**/.env*", "a/.envrc", False),
        ("*.txt", "a/b.txt", True),
        ("a/**/b", "a/x/y/b", False),
        ("# a\n\n!a", "a", True),
    ],
)
def test_lines_mean_what_docker_says_they_mean(lines: str, path: str, passes: bool) -> None:
    assert Ignored(lines).lets_through(path) is passes


def test_dependencies_have_a_layer_of_their_own_before_the_code() -> None:
    syncs = [i for i, (one, rest) in enumerate(instructions()) if one == "RUN" and "sync" in rest]
    assert len(syncs) == 2
    before, after = (instructions()[i][1] for i in syncs)
    assert before == f"{after} --no-install-project"
    assert place(("COPY", "pyproject.toml uv.lock ./")) < syncs[0] < place(("COPY", ". ."))
    assert place(("COPY", ". .")) < syncs[1]


def test_the_code_belongs_to_root_and_is_run_by_another_account() -> None:
    assert place(("COPY", ". .")) < place(("USER", "penstock"))
    assert not any("chown" in rest for _, rest in instructions())
    users = [rest for one, rest in instructions() if one == "USER"]
    assert users == ["penstock"]


def test_no_secret_is_written_into_the_image() -> None:
    names = re.findall(r"(\w+)=", " ".join(r for one, r in instructions() if one in ("ENV", "ARG")))
    assert names
    assert not [name for name in names if re.search("KEY|SECRET|PASSWORD|TOKEN|DSN", name)]


def test_its_health_check_is_a_module_of_ours() -> None:
    [check] = [rest for one, rest in instructions() if one == "HEALTHCHECK"]
    [module] = re.findall(r'CMD \["python", "-m", "([\w.]+)"\]', check)
    assert (ROOT / f"{module.replace('.', '/')}.py").exists()
