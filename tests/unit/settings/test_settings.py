"""Settings: read when asked, typed, and never silently wrong."""

from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.settings import (
    effective_values,
    hide_paths,
    known_names,
    load_settings,
    mask_url,
    masked,
    retired_model_warnings,
)

SEED_DEFAULTS = {
    "EXTRACTION_ENABLED": "false",
    "EXTRACTION_MODE": "async",
    "EXTRACTION_VERSION": "1.0.0",
    "EXTRACTION_CONFIDENCE_THRESHOLD": "0.65",
    "EXTRACTION_MAX_TOKENS": "1024",
    "EXTRACTION_MAX_INPUT_CHARS": "12000",
    "EXTRACTION_MAX_ATTEMPTS": "2",
    "EXTRACTION_RETRY_BASE_SECONDS": "10",
    "EXTRACTION_RETRY_MAX_SECONDS": "60",
    "EXTRACTION_WORKER_POLL_INTERVAL": "1.0",
    "EXTRACTION_HEALTHCHECK_PORT": "8080",
    "EXTRACTION_MAX_PRIMARY_SKILLS": "12",
    "EXTRACTION_MAX_RECENT_TITLES": "3",
    "EXTRACTION_MAX_CERTIFICATIONS": "10",
    "EXTRACTION_MAX_INDUSTRIES": "5",
    "EMBEDDING_ASYNC": "true",
    "EMBEDDING_QUEUE_MAX_DEPTH": "5000",
    "EMBEDDING_TENANT_MAX_PENDING": "2000",
    "EMBEDDING_MAX_ATTEMPTS": "5",
    "EMBEDDING_RETRY_BASE_SECONDS": "10",
    "EMBEDDING_RETRY_MAX_SECONDS": "300",
    "EMBEDDING_WORKER_POLL_INTERVAL": "1.0",
    "NODE_BATCH_MAX": "200",
}


def test_every_documented_default_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = load_settings()

    for name, value in SEED_DEFAULTS.items():
        monkeypatch.setenv(name, value)

    assert load_settings() == defaults


@pytest.mark.parametrize("name", ["PENSTOCK_LEASE_SECOND", "EXTRACTION_MODLE", "EMBEDDING_BAKEND"])
def test_a_misspelt_name_stops_the_start_and_suggests_the_right_one(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")

    with pytest.raises(ConfigurationError, match=f"unknown setting {name}: did you mean "):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EXTRACTION_MAX_TOKENS", "many"),
        ("PENSTOCK_BATCH_SIZE", "0"),
        ("EMBEDDING_BACKEND", "magic"),
        ("NODE_BATCH_MAX", "-1"),
        ("PENSTOCK_TEXT_TIMEOUT_SECONDS", "3"),
    ],
)
def test_an_unusable_value_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError, match=f"{name}={value}"):
        load_settings()


def test_a_heartbeat_longer_than_half_the_lease_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LEASE_SECONDS", "15")

    with pytest.raises(ConfigurationError, match="PENSTOCK_HEARTBEAT_SECONDS"):
        load_settings()


def test_an_env_file_in_the_working_folder_is_read_and_the_environment_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path(".env").write_text("PENSTOCK_TENANT=from-file\nEXTRACTION_VERSION=from-file\nREDIS_URL=\n")
    monkeypatch.setenv("EXTRACTION_VERSION", "from-environment")

    settings = load_settings()

    assert settings.tenant == "from-file"
    assert settings.extraction.version == "from-environment"
    assert settings.redis_url is None


def test_a_misspelt_name_in_the_env_file_is_found_too() -> None:
    Path(".env").write_text("PENSTOCK_TENNANT=acme\n")

    with pytest.raises(ConfigurationError, match="PENSTOCK_TENNANT"):
        load_settings()


def test_the_older_name_of_the_database_address_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTIVEKG_DSN", "postgres://user:pass@host/db")

    assert load_settings().database_url == "postgresql+psycopg://user:pass@host/db"


def test_no_secret_is_in_what_people_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DSN", "postgresql://user:hidden@host/db?sslpassword=hidden")
    monkeypatch.setenv("REDIS_URL", "redis://:hidden@host:6379/0")
    monkeypatch.setenv("GROQ_API_KEY", "hidden")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"PENSTOCK_S3_{name}", "hidden")

    settings = load_settings()

    assert masked(settings)["s3_secret_access_key"] == "********"
    assert "hidden" not in str(masked(settings))
    assert "hidden" not in str(effective_values(settings))
    assert "hidden" not in repr(settings)


def test_a_password_in_the_address_of_an_s3_server_is_not_shown() -> None:
    settings = load_settings(s3_endpoint_url="http://user:hidden@127.0.0.1:9000")

    assert masked(settings)["s3_endpoint_url"] == "http://user:********@127.0.0.1:9000"


def test_a_bad_secret_is_not_repeated_in_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DSN", "postgresql://user:hidden@host/db")
    monkeypatch.setenv("PENSTOCK_BATCH_SIZE", "none")

    with pytest.raises(ConfigurationError) as raised:
        load_settings()

    assert "hidden" not in str(raised.value)


def test_a_retired_model_is_named_with_its_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXTRACTION_PRIMARY_MODEL", "llama-3.1-8b-instant")

    (warning,) = retired_model_warnings(load_settings())

    assert "EXTRACTION_PRIMARY_MODEL=openai/gpt-oss-20b" in warning


def test_every_setting_is_described() -> None:
    assert all(known_names().values())


def test_an_address_without_a_password_is_shown_as_it_is() -> None:
    assert mask_url("sqlite:////data/penstock.db") == "sqlite:////data/penstock.db"


def test_places_in_s3_are_folders_of_all_or_of_one_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_API_S3_PREFIXES", "s3://shared/, acme=s3://private/acme/")
    assert load_settings().api_s3_prefixes == ("s3://shared/", "acme=s3://private/acme/")

    for wrong in ("shared", "s3://shared", "s3://private/acme", "acme=", "=s3://a/", "s3:///a/"):
        monkeypatch.setenv("PENSTOCK_API_S3_PREFIXES", f"s3://shared/,{wrong}")
        with pytest.raises(ConfigurationError, match=r"PENSTOCK_API_S3_PREFIXES.*slash at the end"):
            load_settings()


def test_a_database_with_a_space_in_its_path_is_not_told(tmp_path: Path) -> None:
    file = tmp_path / "Ada Park" / "my x.db"
    settings = load_settings(home=tmp_path, dsn=f"sqlite:///{file}?timeout=5")
    told = f"the database sqlite:///{file} cannot be used: {file}-wal is locked"

    shown = hide_paths(told, settings.folders)

    assert shown == "the database sqlite:… cannot be used: … is locked"
