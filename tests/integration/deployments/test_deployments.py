"""What `prefect.yaml` and the blocks promise."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.flows import Flow, load_flow_from_entrypoint

from blocks import PenstockDatabase
from blocks.configuration import settings_with
from deployments.register import register_blocks
from penstock.errors import ConfigurationError

ROOT = Path(__file__).parents[3]


def deployments() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    return found


@pytest.mark.parametrize("deployment", deployments(), ids=lambda deployment: deployment["name"])
def test_every_entrypoint_loads_and_comes_from_this_project(deployment: dict[str, Any]) -> None:
    flow: Flow[..., Any] = load_flow_from_entrypoint(
        deployment["entrypoint"], use_placeholder_flow=False
    )

    assert Path(flow.fn.__code__.co_filename).is_relative_to(ROOT)
    assert deployment["description"]
    assert set(deployment.get("parameters", {})) <= set(flow.parameters.properties)


@pytest.mark.usefixtures("prefect", "home")
def test_a_saved_block_wins_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DSN", "sqlite:////from/the/environment.db")
    register_blocks()
    dsn = f"sqlite:///{tmp_path / 'from-the-block.db'}"
    PenstockDatabase(dsn=dsn).save("production", overwrite=True)

    assert settings_with(["penstock-database/production"]).database_url == dsn
    assert "environment" in settings_with([]).database_url


@pytest.mark.usefixtures("prefect", "home")
def test_a_block_that_does_not_exist_is_named_in_the_message() -> None:
    with pytest.raises(ConfigurationError, match="penstock-database/nowhere"):
        settings_with(["penstock-database/nowhere"])
