"""The compose file, as far as it can be checked without an engine."""

import re
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


def test_only_two_ports_are_open_to_others() -> None:
    opened = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    assert opened == {"prefect": ["4200:4200"], "api": ["8000:8000"]}


def test_the_image_runs_as_nobody_special_in_the_projects_folder() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert "USER penstock" in lines
    assert any(line.startswith("WORKDIR") for line in lines)
