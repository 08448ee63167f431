"""The bucket block: saved credentials of prefect-aws, and what they become."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect_aws import AwsClientParameters, AwsCredentials, MinIOCredentials

from blocks import LocalRawFolder, S3RawBucket
from penstock.app import App
from penstock.crawl.rawstore import S3RawStore
from penstock.crawl.s3 import S3Access
from penstock.errors import ConfigurationError
from penstock.settings import load_settings
from penstock.store.database import Database
from tests.s3 import SECRET


def minio(access: S3Access) -> MinIOCredentials:
    return MinIOCredentials(
        minio_root_user="hidden-key",
        minio_root_password=SECRET,
        aws_client_parameters=AwsClientParameters(endpoint_url=access.endpoint_url, use_ssl=False),
    )


def test_the_block_and_its_settings_lead_to_the_same_bucket(
    s3_access: S3Access, bucket: str, database: Database
) -> None:
    block = S3RawBucket(bucket_path=f"{bucket}/some/prefix", credentials=minio(s3_access))
    key = block.get_client().put("t", "s", "a", b"x", "txt")

    app = App(load_settings(**block.overrides()), database)

    assert isinstance(app.raw, S3RawStore)
    assert app.raw.get(key) == b"x"
    app.stop_parts()


def test_a_scheme_before_the_bucket_does_no_harm() -> None:
    assert S3RawBucket(bucket_path="s3://mills/raw").overrides()["raw_store"] == "s3://mills/raw"


def test_aws_credentials_become_settings() -> None:
    saved = AwsCredentials(
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        aws_session_token="token",
        region_name="eu-west-1",
    )

    settings = load_settings(**S3RawBucket(bucket_path="mills", credentials=saved).overrides())

    secrets = (
        settings.s3_access_key_id,
        settings.s3_secret_access_key,
        settings.s3_session_token,
    )
    assert [secret and secret.get_secret_value() for secret in secrets] == [
        "key",
        "secret",
        "token",
    ]
    assert (settings.s3_region, settings.s3_endpoint_url) == ("eu-west-1", None)


def test_a_block_without_a_key_does_not_take_the_one_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_S3_ACCESS_KEY_ID", "other")
    monkeypatch.setenv("PENSTOCK_S3_ENDPOINT_URL", "http://127.0.0.1:9000")

    settings = load_settings(**S3RawBucket(bucket_path="mills").overrides())

    assert settings.s3_access_key_id is None
    assert settings.s3_endpoint_url is None


def test_a_folder_that_is_named_wins_over_a_bucket_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_RAW_STORE", "s3://mills/raw")

    settings = load_settings(**LocalRawFolder(path=Path("raw")).overrides())

    assert (settings.raw_folder, settings.raw_store) == (Path("raw"), None)


@pytest.mark.parametrize(
    "choice",
    [
        {"assume_role_arn": "arn:aws:iam::123456789012:role/mills"},
        {"profile_name": "mills"},
        {"aws_client_parameters": {"verify": False}},
        {"aws_client_parameters": {"config": {"signature_version": "unsigned"}}},
    ],
)
def test_what_would_be_ignored_is_refused_with_advice(choice: dict[str, Any]) -> None:
    block = S3RawBucket(bucket_path="mills", credentials=AwsCredentials(**choice))

    with pytest.raises(ConfigurationError, match=r"not used here: .*AWS|~/\.aws"):
        block.overrides()


def test_what_a_form_leaves_behind_is_no_choice() -> None:
    left = {"verify": True, "use_ssl": True, "config": {}, "api_version": ""}
    saved = AwsCredentials(profile_name="", aws_client_parameters=AwsClientParameters(**left))

    assert S3RawBucket(bucket_path="mills", credentials=saved).overrides()


def test_a_session_token_is_not_shown() -> None:
    saved = AwsCredentials(aws_session_token="hidden")

    assert "hidden" not in repr(S3RawBucket(bucket_path="mills", credentials=saved))


def test_a_bucket_path_without_a_bucket_names_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match="s3://bucket/prefix"):
        S3RawBucket(bucket_path="/prefix").get_client()


@pytest.mark.full_suite
def test_importing_the_blocks_does_not_import_prefect_aws() -> None:
    code = "import sys, blocks, blocks.configuration; sys.exit('prefect_aws' in sys.modules)"
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=False, timeout=60)
    assert done.returncode == 0
