"""The compose file, as far as it can be checked without an engine."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.settings.legacy import _get_settings_fields
from prefect.settings.models.root import Settings as PrefectSettings
from typer.main import get_command

from entrypoints.cli.main import app
from penstock.settings import known_names

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deployments" / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if one.get("build")}
# Settings of the package prefect-redis, which only the image has.
REDIS_SETTING = re.compile("PREFECT_REDIS_MESSAGING_(HOST|PORT|DB|USERNAME|PASSWORD)")


def test_everything_that_is_needed_is_there() -> None:
    assert {"postgres", "redis", "minio", "prefect", "worker", "api"} <= set(SERVICES)
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in COMPOSE["volumes"], name
        for config in service.get("configs", ()):
            assert config["source"] in COMPOSE["configs"], name


def test_who_is_waited_for_while_healthy_says_when_it_is() -> None:
    for service in SERVICES.values():
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "test" in SERVICES[needed]["healthcheck"], needed


def test_images_of_others_are_pinned() -> None:
    for name, service in SERVICES.items():
        if name not in OURS:
            tag = service["image"].partition(":")[2]
            assert tag, name
            assert tag != "latest", name


@pytest.mark.parametrize("name", OURS)
def test_every_setting_of_ours_is_one(name: str) -> None:
    known = set(known_names()) | set(_get_settings_fields(PrefectSettings))
    for setting in OURS[name]["environment"]:
        assert setting in known or REDIS_SETTING.fullmatch(setting), setting


@pytest.mark.parametrize("name", OURS)
def test_every_command_of_ours_is_one(name: str) -> None:
    commands: Any = get_command(app)
    text = " ".join(OURS[name]["command"])
    for command in re.findall(r"penstock (\w+)", text.removesuffix("--pool penstock")):
        assert command in commands.commands
    for module in re.findall(r"python -m ([\w.]+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()


def test_what_the_reader_has_to_set_is_asked_for_or_has_a_default() -> None:
    for variable in re.findall(r"\$\{[^}]*\}", FILE.read_text()):
        assert re.fullmatch(r"\$\{\w+:[-?].*\}", variable), variable


def test_only_what_asks_for_tokens_is_open_to_other_machines() -> None:
    opened = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    assert opened == {"prefect": ["127.0.0.1:4200:4200"], "api": ["8000:8000"]}
    assert "PENSTOCK_API_JWT_SECRET" in SERVICES["api"]["environment"]


def test_the_prefect_server_asks_for_what_all_of_ours_know() -> None:
    server = SERVICES["prefect"]["environment"]
    asked_for = server["PREFECT_SERVER_API_AUTH_STRING"]
    assert asked_for.startswith("${PREFECT_API_AUTH_STRING:?"), "it has no default"
    for name in ("install", "worker", "api"):
        assert SERVICES[name]["environment"]["PREFECT_API_AUTH_STRING"] == asked_for
    origins = server["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"].split(",")
    assert server["PREFECT_SERVER_UI_API_URL"].removesuffix("/api") in origins
    assert "*" not in origins


def test_the_image_has_the_locked_versions_of_everything() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "uv sync --locked" in text
    assert "COPY pyproject.toml uv.lock" in text
    for unlocked in ("pip install -e", "pip install .", "prefect-redis>="):
        assert unlocked not in text
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    [ours] = [one for one in locked if one["name"] == "penstock"]
    extras = set(re.findall(r"--extra (\w+)", text))
    needed = {one["name"] for extra in extras for one in ours["optional-dependencies"][extra]}
    # compose.yaml has Prefect's messages in Redis; the others are for workers of these pools.
    assert needed == {"prefect-redis", "prefect-docker", "prefect-kubernetes"}
    [uv] = [one for one in locked if one["name"] == "uv"]
    assert f"uv=={uv['version']}" in text


def test_the_image_runs_as_nobody_special_in_the_projects_folder() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert "USER penstock" in lines
    assert any(line.startswith("WORKDIR") for line in lines)


def test_what_is_not_for_the_repository_is_not_for_the_image() -> None:
    """Among it are the home, with its passwords, and files of settings, at any depth."""
    patterns = (ROOT / ".dockerignore").read_text().split()
    anywhere = [one.removeprefix("**/") for one in patterns if one.startswith("**/")]
    ignored = [name.rstrip("/") for name in (ROOT / ".gitignore").read_text().split()]
    assert {".penstock", ".env"} <= set(ignored)
    for name in (*ignored, ".env.production"):
        assert any(fnmatch(name, pattern) for pattern in anywhere), name


def test_the_home_in_the_image_is_its_owners_alone() -> None:
    assert "install -d -m 700 -o penstock /data" in (ROOT / "Dockerfile").read_text()
