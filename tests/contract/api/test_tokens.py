"""Who is let in, and to what."""

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from entrypoints.api.app import create_app
from penstock.errors import ConfigurationError
from penstock.settings import load_settings
from penstock.store.database import Database
from penstock.store.schema import nodes
from tests.contract.api.routes import OPEN, routes_of
from tests.contract.api.service import EVERYTHING, MakeService, Service, problem_of
from tests.contract.api.tokens import (
    SECRET,
    as_tenant,
    bearer,
    make_rsa_key,
    make_token,
    public_pem,
    write_public_key,
)
from tests.factories import read_rows

# Who is let in has nothing to do with the database.
pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
# In no run's time, however long the run takes.
YEAR_2100 = 4102444800
READ, WRITE, REVIEW, ADMIN = "kg:read", "kg:write", "kg:review", "admin:refresh"
NODE = "0190b3a2-0000-7000-8000-000000000000"
# What each route asks for, and a request that gets as far as being asked.
SCOPES: dict[str, tuple[str, Any]] = {
    "POST /nodes": (WRITE, {"json": {}}),
    "POST /nodes/batch": (WRITE, {"json": {"nodes": [{}]}}),
    "GET /nodes/{node_id}": (READ, {}),
    "DELETE /nodes/{node_id}": (WRITE, {}),
    "POST /nodes/{node_id}/refresh": (ADMIN, {}),
    "POST /upload": (WRITE, {"files": [("files", ("a.txt", b"a"))]}),
    "GET /search": (READ, {"params": {"q": "a"}}),
    "GET /passages": (READ, {"params": {"q": "a"}}),
    "GET /review": (REVIEW, {}),
    "PATCH /nodes/{node_id}/fields": (REVIEW, {"json": {"fields": {"title": "a"}}}),
    "POST /nodes/{node_id}/accept": (REVIEW, {}),
    "GET /runs": (READ, {}),
    "POST /runs": (WRITE, {"json": {"source": "nowhere"}}),
    "GET /runs/{run_id}": (READ, {}),
    "POST /runs/{run_id}/abort": (WRITE, {}),
    "POST /runs/{run_id}/resume": (WRITE, {}),
    "GET /runs/{run_id}/logs": (READ, {}),
    "GET /runs/{run_id}/events": (READ, {}),
    "GET /admin/{queue}/status": (ADMIN, {}),
    "POST /admin/{queue}/requeue": (ADMIN, {"json": {}}),
    "GET /admin/{queue}/dlq": (ADMIN, {}),
    "DELETE /admin/{queue}/dlq": (ADMIN, {}),
    "POST /admin/{queue}/dlq/replay": (ADMIN, {"json": {}}),
    "GET /extraction-jobs": (READ, {}),
    "POST /extraction-jobs": (WRITE, {"json": {"node_id": NODE}}),
    "GET /extraction-jobs/statistics": (READ, {}),
    "GET /extraction-jobs/stuck": (READ, {}),
    "POST /extraction-jobs/retry": (WRITE, {"json": {"ids": [1]}}),
    "POST /extraction-jobs/cancel": (WRITE, {"json": {"ids": [1]}}),
    "GET /extraction-jobs/{job_id}": (READ, {}),
    "POST /extraction-jobs/{job_id}/retry": (WRITE, {}),
    "POST /extraction-jobs/{job_id}/cancel": (WRITE, {}),
    "DELETE /extraction-jobs/{job_id}": (WRITE, {}),
    "GET /metrics": (ADMIN, {}),
}


@pytest.fixture
def guarded(make_service: MakeService) -> Service:
    return make_service(api_jwt_secret=SECRET)


def ask(service: Service, route: str, headers: dict[str, str], **options: Any) -> Any:
    method, _, path = route.partition(" ")
    values = {"node_id": NODE, "run_id": 1, "job_id": 1, "queue": "extraction"}
    return service.http.request(method, path.format(**values), headers=headers, **options)


def search(service: Service, token: str, **params: Any) -> Any:
    return service.http.get("/search", params={"q": "a", **params}, headers=bearer(token))


def test_every_route_but_the_open_ones_is_in_the_table(guarded: Service) -> None:
    assert routes_of(guarded.web) == {*SCOPES, *OPEN}


@pytest.mark.parametrize("route", SCOPES)
def test_each_route_asks_for_a_token_and_for_its_scope(guarded: Service, route: str) -> None:
    scope, options = SCOPES[route]
    others = [one for one in (READ, WRITE, REVIEW, ADMIN) if one != scope]

    nobody = ask(guarded, route, {}, **options)
    assert nobody.headers["www-authenticate"] == "Bearer"
    problem_of(nobody, 401)
    lacking = problem_of(ask(guarded, route, as_tenant("acme", *others), **options), 403)
    assert scope in lacking["detail"]
    allowed = ask(guarded, route, as_tenant("acme", scope), **options)
    assert allowed.status_code in (200, 400, 404), allowed.text


@pytest.mark.parametrize("route", SCOPES)
def test_without_tokens_each_route_answers_only_to_names_of_this_machine(
    service: Service, route: str
) -> None:
    _, options = SCOPES[route]

    refused = ask(service, route, {"Host": "evil.example"}, **options)
    assert "evil.example" in problem_of(refused, 403)["detail"]
    answered = ask(service, route, {"Host": "localhost:8000"}, **options)
    assert answered.status_code in (200, 400, 404), answered.text


@pytest.mark.parametrize("route", [route for route in SCOPES if not route.startswith("GET ")])
def test_without_tokens_a_page_of_another_site_changes_nothing(
    service: Service, route: str
) -> None:
    _, options = SCOPES[route]
    before = read_rows(service.database, *EVERYTHING)

    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ):
        problem_of(ask(service, route, headers, **options), 403)
    assert read_rows(service.database, *EVERYTHING) == before
    ours = {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1"}
    assert ask(service, route, ours, **options).status_code in (200, 202, 400, 404)


@pytest.mark.parametrize("route", sorted(OPEN))
def test_open_routes_ask_nobody(guarded: Service, route: str) -> None:
    assert ask(guarded, route, {}).status_code == 200


def test_a_token_names_the_tenant(guarded: Service) -> None:
    answer = guarded.http.post("/nodes", json={}, headers=as_tenant("globex")).json()

    mine = guarded.http.get(f"/nodes/{answer['id']}", headers=as_tenant("globex")).json()
    assert mine["tenant_id"] == "globex"


def test_scopes_may_be_written_as_words(guarded: Service) -> None:
    assert search(guarded, make_token("acme", "kg:read kg:write")).status_code == 200
    alone = make_token("acme", None, scope="kg:read")
    assert search(guarded, alone).status_code == 403, "`scopes` is there, and names none"
    claims = {"tenant_id": "acme", "scope": "kg:read", "exp": int(time.time()) + 60}
    assert search(guarded, jwt.encode(claims, SECRET, "HS256")).status_code == 200


@pytest.mark.parametrize("scopes", [None, 5, [], {"kg:read": True}, [["kg:read"]], "kg:reads", ""])
def test_odd_scopes_allow_nothing(guarded: Service, scopes: Any) -> None:
    problem_of(search(guarded, make_token("acme", scopes)), 403)


@pytest.mark.parametrize("tenant", [None, "", " ", 5, ["acme"], "a\x00b", "\ud800", "x" * 201])
def test_a_token_without_a_usable_tenant_is_refused(guarded: Service, tenant: Any) -> None:
    problem_of(search(guarded, make_token(tenant)), 401)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1},
        {"nbf": YEAR_2100},
        {"exp": "soon"},
        {"iat": YEAR_2100},
        {"exp": 10**400},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"nbf": 10**400},
        {"nbf": float("inf")},
        {"iat": float("inf")},
        {"iat": 10**400},
        {"nbf": float("nan")},
        {"iat": float("nan")},
        {"exp": -1},
        {"exp": -(10**400)},
        {"nbf": -1},
        {"nbf": -(10**400)},
        {"iat": -1.5},
        {"exp": 10**300},
        {"exp": [1]},
        {"nbf": None},
        {"iat": {}},
    ],
)
def test_a_token_is_good_only_in_its_time(guarded: Service, claims: dict[str, Any]) -> None:
    problem_of(search(guarded, make_token(**claims)), 401)


def test_a_token_that_never_ends_is_refused(guarded: Service) -> None:
    for_ever = jwt.encode({"tenant": "acme", "scopes": ["kg:read"]}, SECRET, "HS256")

    assert "exp" in problem_of(search(guarded, for_ever), 401)["detail"]


def test_tokens_for_others_and_of_others_are_refused(make_service: MakeService) -> None:
    service = make_service(
        api_jwt_secret=SECRET, api_jwt_audience="penstock", api_jwt_issuer="https://id.example"
    )
    good: dict[str, Any] = {"aud": "penstock", "iss": "https://id.example"}

    assert search(service, make_token(**good)).status_code == 200
    assert search(service, make_token(**good | {"aud": ["x", "penstock"]})).status_code == 200
    for bad in (
        {},
        {"aud": "penstock"},
        {"iss": "https://id.example"},
        good | {"aud": "another"},
        good | {"iss": "https://evil.example"},
    ):
        problem_of(search(service, make_token(**bad)), 401)


def test_a_token_signed_with_another_secret_is_refused(guarded: Service) -> None:
    problem_of(search(guarded, make_token(key="another secret of more than 32 characters")), 401)


def test_tokens_may_be_signed_with_a_private_key(make_service: MakeService, tmp_path: Path) -> None:
    service = make_service(api_jwt_public_key=write_public_key(tmp_path))

    good = make_token(key=make_rsa_key(), algorithm="RS256")

    assert search(service, good).status_code == 200
    problem_of(search(service, make_token()), 401)


def test_the_public_key_is_not_taken_for_a_secret(
    make_service: MakeService, tmp_path: Path
) -> None:
    pem = public_pem(make_rsa_key())
    forged = forge({"alg": "HS256", "typ": "JWT"}, pem)
    only_public = make_service(api_jwt_public_key=write_public_key(tmp_path))
    both = make_service(api_jwt_public_key=write_public_key(tmp_path), api_jwt_secret=SECRET)

    for service in (only_public, both):
        problem_of(search(service, forged), 401)
    assert search(both, make_token()).status_code == 200
    assert search(both, make_token(key=make_rsa_key(), algorithm="RS256")).status_code == 200


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, ["HS256"], {}, "HS512"])
def test_no_other_algorithm_is_accepted(guarded: Service, algorithm: Any) -> None:
    for signature in (b"", SECRET.encode()):
        problem_of(search(guarded, forge({"alg": algorithm}, signature)), 401)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "bearer a.b.c",
        "Bearer .",
        "Bearer a.b",
        "Bearer \xff",
    ],
)
def test_what_is_no_token_is_refused(guarded: Service, header: str) -> None:
    raw = {b"Authorization": header.encode("latin-1")}
    problem_of(guarded.http.get("/search?q=a", headers=raw), 401)


def test_another_tenant_may_not_be_named(guarded: Service) -> None:
    asked = [
        ("GET", "/search?q=a&tenant_id=globex", None),
        ("GET", "/runs?tenant_id=globex", None),
        ("GET", "/extraction-jobs?tenant_id=globex", None),
        ("GET", "/extraction-jobs/stuck?tenant_id=globex", None),
        ("POST", "/extraction-jobs/retry", {"ids": [1], "tenant_id": "globex"}),
        ("POST", "/extraction-jobs/cancel", {"ids": [1], "tenant_id": "globex"}),
        ("GET", "/admin/embedding/status?tenant_id=globex", None),
        ("POST", "/nodes", {"tenant_id": "globex"}),
        ("POST", "/nodes/batch", {"nodes": [{}], "tenant_id": "globex"}),
        ("POST", "/nodes/batch", {"nodes": [{}, {"tenant_id": "globex"}]}),
        ("POST", "/admin/embedding/requeue", {"tenant_id": "globex"}),
        ("POST", "/runs", {"source": "x", "tenant_id": "globex"}),
    ]
    for method, path, body in asked:
        response = guarded.http.request(method, path, json=body, headers=as_tenant("acme"))
        assert "globex" in problem_of(response, 403)["detail"], path
    files = [("files", ("a.txt", b"a"))]
    upload = guarded.http.post(
        "/upload", files=files, data={"tenant_id": "globex"}, headers=as_tenant("acme")
    )
    problem_of(upload, 403)
    assert guarded.count(nodes) == 0
    assert guarded.raw_files() == []


def test_a_batch_tells_of_a_foreign_tenant_and_goes_on_if_it_may(guarded: Service) -> None:
    body = {"nodes": [{}, {"tenant_id": "globex"}], "continue_on_error": True}

    answer = guarded.http.post("/nodes/batch", json=body, headers=as_tenant("acme")).json()

    assert (answer["created"], answer["failed"]) == (1, 1)
    assert guarded.count(nodes, nodes.c.tenant_id == "globex") == 0


def test_neither_secrets_nor_tokens_are_in_any_refusal(guarded: Service) -> None:
    tokens = [
        make_token(exp=1),
        make_token(key="another secret of more than 32 characters"),
        make_token("acme", []),
        forge({"alg": "none"}, b""),
        "not-a-token-at-all",
    ]
    for token in tokens:
        response = search(guarded, token)
        assert response.status_code in (401, 403)
        told = response.text + str(response.headers)
        assert SECRET not in told
        assert not any(part and part in told for part in token.split("."))


def test_a_public_key_that_is_none_stops_the_start(database: Database, tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("not a key")
    for path in (tmp_path / "missing.pem", tmp_path / "none.pem"):
        settings = load_settings(home=tmp_path, dsn=database.url, api_jwt_public_key=path)
        with pytest.raises(ConfigurationError, match="PENSTOCK_API_JWT_PUBLIC_KEY"):
            create_app(settings)


def forge(header: dict[str, Any], key: bytes) -> str:
    """A token that says of itself how it is signed, signed by this key as HS256 is."""
    claims = {"tenant": "acme", "scopes": ["kg:read"], "exp": int(time.time()) + 60}
    signed = ".".join(_encode(json.dumps(part).encode()) for part in (header, claims))
    signature = hmac.new(key, signed.encode(), hashlib.sha256).digest() if key else b""
    return f"{signed}.{_encode(signature)}"


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
