"""What `penstock ingest` says when Prefect answers, but does not let it in."""

from pathlib import Path

import httpx
import pytest
from prefect.exceptions import PrefectHTTPStatusError

from entrypoints.cli.ingest import _explain
from penstock.settings import load_settings


def make_error(kind: type[httpx.HTTPStatusError], status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://ops:hunter2@127.0.0.1:1/api/admin/version")
    text = f"{status} for url {request.url}"
    return kind(text, request=request, response=httpx.Response(status, request=request))


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_says_what_to_set(tmp_path: Path, status: int) -> None:
    told = _explain(load_settings(home=tmp_path), 1, make_error(PrefectHTTPStatusError, status))

    assert told == (
        "Prefect refused the credentials: set PREFECT_API_AUTH_STRING "
        f"(that of `penstock up` is in {tmp_path}/prefect.auth)"
    )


def test_other_answers_and_other_servers_are_no_refusal_of_prefect(tmp_path: Path) -> None:
    for error in (make_error(PrefectHTTPStatusError, 500), make_error(httpx.HTTPStatusError, 401)):
        told = _explain(load_settings(home=tmp_path), 1, error)
        assert "PREFECT_API_AUTH_STRING" not in told
        assert "hunter2" not in told
