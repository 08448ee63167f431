"""The client of S3, and what becomes of botocore's errors."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from botocore import exceptions

from penstock.crawl.s3 import (
    TRIES,
    S3Access,
    build_once,
    build_s3_client,
    s3_errors,
)
from penstock.errors import (
    ConfigurationError,
    DocumentFault,
    ErrorClass,
    ListingFailed,
    PenstockError,
)
from tests.s3 import SECRET, Reply, script

URL = "s3://mills/a.pdf"


@pytest.fixture
def hasty(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client that does not wait before it tries again."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    return s3


def trouble(client: Any, reply: Reply | Exception) -> PenstockError:
    script(client, "GetObject", *[reply] * TRIES)
    with pytest.raises(PenstockError) as caught, s3_errors("fetch", URL, "the source"):
        client.get_object(Bucket="mills", Key="a.pdf")
    return caught.value


def test_secrets_are_in_no_representation() -> None:
    access = S3Access("http://127.0.0.1:1", "us-east-1", "hidden", "hidden", "hidden")
    assert "hidden" not in repr(access)
    assert "127.0.0.1" in str(access)


def test_waiting_is_bounded_and_sixteen_threads_have_a_connection_each() -> None:
    with closing(build_s3_client(S3Access(region="eu-west-1"))) as client:
        config = client.meta.config
    assert config.connect_timeout <= 10
    assert config.read_timeout <= 60
    assert config.max_pool_connections >= 16
    assert config.retries == {"mode": "standard", "total_max_attempts": 3}


def test_another_server_is_addressed_by_path(s3: Any, bucket: str) -> None:
    asked = script(s3, "ListObjectsV2")
    s3.list_objects_v2(Bucket=bucket)
    assert f"/{bucket}?" in asked[0]


def test_aws_is_addressed_by_host_name() -> None:
    access = S3Access(None, "eu-west-1", "key", "secret")
    with closing(build_s3_client(access)) as client:
        asked = script(client, "ListObjectsV2", Reply(body=b"<ListBucketResult/>"))
        client.list_objects_v2(Bucket="mills")
    assert asked[0].startswith("https://mills.s3.eu-west-1.amazonaws.com/")


def test_a_temporary_error_is_retried(hasty: Any, bucket: str) -> None:
    hasty.put_object(Bucket=bucket, Key="a", Body=b"x")
    asked = script(hasty, "GetObject", Reply(503, "SlowDown"), Reply(500, "InternalError"))
    assert hasty.get_object(Bucket=bucket, Key="a")["Body"].read() == b"x"
    assert len(asked) == 3


@pytest.mark.parametrize(
    "access",
    [
        S3Access(access_key_id="hidden"),
        S3Access(secret_access_key="hidden"),
        S3Access(session_token="hidden"),
        S3Access(access_key_id="hid\nden", secret_access_key="hidden"),
        S3Access(access_key_id="hidden", secret_access_key="hidden\u2026"),
        S3Access("http://user:hidden@127.0.0.1:9000"),
        S3Access("127.0.0.1:9000"),
        S3Access("http://"),
        S3Access(region="no region"),
    ],
)
def test_invalid_settings_are_refused_before_any_request(access: S3Access) -> None:
    with pytest.raises(ConfigurationError, match="PENSTOCK_S3_") as caught:
        build_s3_client(access)
    assert "hidden" not in str(caught.value)


def test_white_space_around_a_key_is_removed(s3_access: S3Access) -> None:
    copied = S3Access(s3_access.endpoint_url, "us-east-1", "key\n", " secret ")
    with closing(build_s3_client(copied)) as client:
        assert client.list_buckets()["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_a_profile_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigurationError, match="nobody"):
        build_s3_client(S3Access())


def test_no_credentials_anywhere_are_a_configuration_fault(s3_access: S3Access) -> None:
    with closing(build_s3_client(S3Access(s3_access.endpoint_url, "us-east-1"))) as client:
        for named in (
            s3_errors("fetch", URL, "the source"),
            s3_errors("list", "s3://mills/", "the source", listing=True),
        ):
            with (
                pytest.raises(ConfigurationError, match=r"'mills'.*PENSTOCK_S3_ACCESS_KEY_ID"),
                named,
            ):
                client.list_objects_v2(Bucket="mills")


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(403, "AccessDenied"), ErrorClass.FORBIDDEN),
        (Reply(403, "AllAccessDisabled"), ErrorClass.FORBIDDEN),
        (Reply(403, "InvalidObjectState"), ErrorClass.UNAVAILABLE),
        (Reply(404, "NoSuchKey"), ErrorClass.UNAVAILABLE),
        (Reply(400, "RequestTimeout"), ErrorClass.TIMEOUT),
        (Reply(503, "SlowDown"), ErrorClass.RATE_LIMITED),
        (Reply(503, "ServiceUnavailable"), ErrorClass.RATE_LIMITED),
        (Reply(429, "TooManyRequests"), ErrorClass.RATE_LIMITED),
        (Reply(500, "InternalError"), ErrorClass.UNAVAILABLE),
        (Reply(400, "SomethingNew"), ErrorClass.UNAVAILABLE),
        (exceptions.ReadTimeoutError(endpoint_url="http://x"), ErrorClass.TIMEOUT),
        (exceptions.ConnectTimeoutError(endpoint_url="http://x"), ErrorClass.TIMEOUT),
        (exceptions.EndpointConnectionError(endpoint_url="http://x"), ErrorClass.UNAVAILABLE),
        (exceptions.ConnectionClosedError(endpoint_url="http://x"), ErrorClass.UNAVAILABLE),
        (exceptions.SSLError(endpoint_url="http://x", error="bad"), ErrorClass.UNAVAILABLE),
    ],
    ids=lambda value: getattr(value, "code", None) or str(value),
)
def test_each_error_has_its_class(hasty: Any, reply: Reply | Exception, kind: ErrorClass) -> None:
    fault = trouble(hasty, reply)
    assert isinstance(fault, DocumentFault)
    assert fault.kind is kind
    assert URL in str(fault)


@pytest.mark.parametrize(
    ("code", "status", "setting"),
    [
        ("NoSuchBucket", 404, "correct the source"),
        ("InvalidAccessKeyId", 403, "PENSTOCK_S3_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", 403, "PENSTOCK_S3_SECRET_ACCESS_KEY"),
        ("ExpiredToken", 400, "PENSTOCK_S3_ACCESS_KEY_ID"),
        ("AuthorizationHeaderMalformed", 400, "PENSTOCK_S3_REGION"),
    ],
)
def test_a_configuration_error_names_the_bucket_and_the_setting(
    hasty: Any, code: str, status: int, setting: str
) -> None:
    fault = trouble(hasty, Reply(status, code))
    assert isinstance(fault, ConfigurationError)
    assert "'mills'" in str(fault)
    assert setting in str(fault)


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "Odd", "NoSuchBucket"])
def test_a_server_that_echoes_the_key_does_not_get_it_into_a_message(hasty: Any, code: str) -> None:
    fault = trouble(hasty, Reply(403, code))
    assert SECRET not in str(fault)
    assert "hidden-key" not in str(fault)


@pytest.mark.parametrize("status", [200, 400, 500])
def test_what_is_no_s3_server_is_not_repeated(hasty: Any, status: int) -> None:
    script(hasty, "ListObjectsV2", *[Reply(status, body=b"<html>hidden")] * TRIES)
    with (
        pytest.raises(ListingFailed) as caught,
        s3_errors("list", "s3://mills/", "the source", listing=True),
    ):
        hasty.list_objects_v2(Bucket="mills")
    assert "hidden" not in str(caught.value)


def test_our_own_errors_pass_unchanged() -> None:
    with pytest.raises(ListingFailed, match="mine"), s3_errors("fetch", URL, "the source"):
        raise ListingFailed("mine")


def test_a_client_is_built_once_however_many_threads_ask() -> None:
    together, built = threading.Barrier(8), list[object]()

    def factory() -> object:
        built.append(object())
        return built[-1]

    client = build_once(factory)

    def ask(_: int) -> object:
        together.wait(timeout=60)
        return client()

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(ask, range(8)))) == 1
    assert len(built) == 1
