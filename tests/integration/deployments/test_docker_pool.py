"""The deployments for containers, on a real Prefect server; no container is started."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import flow
from prefect.blocks.system import Secret
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_RESULTS_DEFAULT_STORAGE_BLOCK, temporary_settings
from prefect.workers.base import BaseJobConfiguration
from prefect_aws.client_parameters import AwsClientParameters
from prefect_aws.credentials import AwsCredentials
from prefect_aws.s3 import S3Bucket

from deployments.automations import FAILED_INGESTS, OLD_QUEUES, ZOMBIES
from deployments.install import ROOT, install
from deployments.pools import DOCKER_POOL, POOL, QUEUES
from penstock.crawl.s3 import S3Access
from penstock.errors import UsageError
from penstock.local.prefect_server import ServerAddress

pytestmark = pytest.mark.usefixtures("prefect", "home")

FILE = ROOT / "deployments" / "prefect-docker.yaml"
IMAGE = "registry.example/penstock:1.0"
DSN = "postgresql://penstock:very-secret@postgres/penstock"


@pytest.fixture
def client(prefect_server: ServerAddress) -> Iterator[SyncPrefectClient]:
    """It leaves the server, which others use too, as it found it."""
    auth_string = prefect_server.auth_string
    with SyncPrefectClient(prefect_server.api_url, auth_string=auth_string) as client:
        yield client
        for name in (ZOMBIES, FAILED_INGESTS, OLD_QUEUES):
            for automation in client.read_automations_by_name(name):
                client.delete_automation(automation.id)
        for deployment in deployed(client):
            client.delete_deployment(deployment.id)
        with suppress(ObjectNotFound):
            client.delete_work_pool(DOCKER_POOL)


def deployed(client: SyncPrefectClient) -> list[DeploymentResponse]:
    return [one for one in client.read_deployments() if one.work_pool_name == DOCKER_POOL]


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def job(client: SyncPrefectClient, deployment: DeploymentResponse) -> dict[str, Any]:
    """What a worker of the pool makes of the deployment's variables, blocks included."""
    template = client.read_work_pool(DOCKER_POOL).base_job_template
    made: Any = asyncio.run(
        BaseJobConfiguration.from_template_and_values(template, deployment.job_variables)
    )
    return {"env": made.env, "command": made.command}


def test_they_are_those_of_the_process_pool_in_containers() -> None:
    described, ours = read(ROOT / "prefect.yaml")["deployments"], read(FILE)["deployments"]
    assert len(ours) == len(described)
    for process, docker in zip(described, ours, strict=True):
        there, here = process.pop("work_pool"), docker.pop("work_pool")
        assert docker == process
        assert here["work_queue_name"] == there["work_queue_name"]
        assert here["job_variables"]["env"].items() >= there["job_variables"]["env"].items()
        assert (there["name"], here["name"]) == (POOL, DOCKER_POOL)


def test_without_an_image_or_a_bucket_nothing_is_made(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="need IMAGE and PENSTOCK_RAW_STORE"):
        list(install("docker"))
    monkeypatch.setenv("IMAGE", IMAGE)
    with pytest.raises(UsageError, match="need PENSTOCK_RAW_STORE"):
        list(install("docker"))
    with pytest.raises(ObjectNotFound):
        client.read_work_pool(DOCKER_POOL)


def test_one_command_makes_them_and_stores_no_password_in_them(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGE", IMAGE)
    monkeypatch.setenv("PENSTOCK_RAW_STORE", "s3://bucket/raw")
    Secret(value=DSN).save("penstock-dsn", overwrite=True)

    said = list(install("docker"))

    assert f"created work pool '{DOCKER_POOL}' of type docker" in said
    pool = client.read_work_pool(DOCKER_POOL)
    assert pool.type == "docker"
    for queue in QUEUES:
        found = client.read_work_queue_by_name(queue.name, work_pool_name=DOCKER_POOL)
        assert (found.priority, found.concurrency_limit) == (queue.priority, queue.limit)
    made = deployed(client)
    assert {one.name for one in made} == {one["name"] for one in read(FILE)["deployments"]}
    assert set(made[0].job_variables) <= set(pool.base_job_template["variables"]["properties"])
    for one in made:
        assert one.job_variables["image"] == IMAGE
        assert one.job_variables["env"]["PENSTOCK_RAW_STORE"] == "s3://bucket/raw"
        assert "very-secret" not in json.dumps(one.model_dump(mode="json"))
        assert one.pull_steps == [
            {"prefect.deployments.steps.set_working_directory": {"directory": "/penstock"}}
        ]
    assert "very-secret" not in json.dumps(pool.base_job_template)
    started = job(client, made[0])
    assert started["env"]["PENSTOCK_DSN"] == DSN, "the worker reads the block"
    assert started["command"] is None


def test_results_of_own_flows_are_in_the_bucket(s3: Any, bucket: str, s3_access: S3Access) -> None:
    credentials = AwsCredentials(
        aws_access_key_id=s3_access.access_key_id,
        aws_secret_access_key=s3_access.secret_access_key,
        region_name=s3_access.region,
        aws_client_parameters=AwsClientParameters(endpoint_url=s3_access.endpoint_url),
    )
    block = S3Bucket(bucket_name=bucket, bucket_folder="results", credentials=credentials)
    block.save("penstock-results", overwrite=True)
    named = read(FILE)["deployments"][0]["work_pool"]["job_variables"]["env"]
    chosen = named["PREFECT_RESULTS_DEFAULT_STORAGE_BLOCK"]

    @flow(persist_result=True, result_serializer="json")
    def own() -> str:
        return uuid.uuid4().hex

    with temporary_settings({PREFECT_RESULTS_DEFAULT_STORAGE_BLOCK: chosen}):
        result = own()

    [kept] = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert kept["Key"].startswith("results/")
    assert result in s3.get_object(Bucket=bucket, Key=kept["Key"])["Body"].read().decode()
