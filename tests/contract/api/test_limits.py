"""How often a tenant may ask, and which web sites may ask for it."""

import pytest

from entrypoints.api.ratelimit import TenantRates
from tests.contract.api.service import MakeService, Service, problem_of
from tests.contract.api.tokens import SECRET, as_tenant
from tests.together import run_together

# Neither has anything to do with the database.
pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
SITE = "https://app.example.com"


def preflight(service: Service, origin: str) -> dict[str, str]:
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    return dict(service.http.options("/nodes", headers=asked).headers)


def test_a_tenant_that_asks_too_often_waits_and_others_do_not(make_service: MakeService) -> None:
    service = make_service(api_jwt_secret=SECRET, api_requests_per_minute=12)

    def search(tenant: str) -> int:
        return service.http.get("/search?q=a", headers=as_tenant(tenant)).status_code

    assert [search("acme") for _ in range(3)] == [200, 200, 429]
    refused = service.http.get("/search?q=a", headers=as_tenant("acme"))
    detail = problem_of(refused, 429)["detail"]
    assert "acme" in detail
    assert f"{refused.headers['retry-after']} s" in detail
    assert 1 <= int(refused.headers["retry-after"]) <= 5
    assert search("globex") == 200
    assert service.http.get("/health").status_code == 200


def test_a_token_that_is_not_good_costs_its_tenant_nothing(make_service: MakeService) -> None:
    service = make_service(api_jwt_secret=SECRET, api_requests_per_minute=6)
    for _ in range(20):
        service.http.get("/search?q=a", headers={"Authorization": "Bearer a.b.c"})

    assert service.http.get("/search?q=a", headers=as_tenant("acme")).status_code == 200


def test_without_tokens_nobody_is_counted(make_service: MakeService) -> None:
    service = make_service(api_requests_per_minute=1)

    assert {service.http.get("/runs").status_code for _ in range(20)} == {200}


class TestRates:
    pytestmark = pytest.mark.usefixtures("database")

    def test_room_comes_back_evenly(self) -> None:
        now = 0.0
        rates = TenantRates(60, clock=lambda: now)
        assert [rates.take("acme") for _ in range(11)] == [0] * 10 + [1]

        now = 0.5
        assert rates.take("acme") == 1
        now = 3.2
        assert [rates.take("acme") for _ in range(4)] == [0, 0, 0, 1]
        now = 1000.0
        assert [rates.take("acme") for _ in range(11)][-1] == 1, "no more than a burst is saved up"

    def test_a_wait_that_is_kept_is_enough(self) -> None:
        now = 0.0
        rates = TenantRates(7, clock=lambda: now)
        for _ in range(50):
            wait = rates.take("acme")
            now += wait
            if wait:
                assert rates.take("acme") == 0

    def test_many_at_once_share_one_bucket(self) -> None:
        rates = TenantRates(60, clock=lambda: 0.0)

        taken = run_together(8, lambda _: [rates.take("acme") for _ in range(5)])

        assert sum(wait == 0 for waits in taken for wait in waits) == 10

    def test_zero_means_no_limit(self) -> None:
        rates = TenantRates(0)

        assert {rates.take("acme") for _ in range(1000)} == {0}

    def test_many_tenants_are_not_remembered_for_ever(self) -> None:
        rates = TenantRates(60, clock=lambda: 0.0)
        for number in range(10_500):
            rates.take(str(number))

        assert len(rates._buckets) == 10_000


def test_no_web_site_may_ask_unless_it_is_named(service: Service) -> None:
    answered = service.http.get("/runs", headers={"Origin": SITE})

    assert not [name for name in answered.headers if name.startswith("access-control")]
    assert not [name for name in preflight(service, SITE) if name.startswith("access-control")]


def test_a_named_web_site_may_ask_and_no_other(make_service: MakeService) -> None:
    service = make_service(api_cors_origins=(SITE,), api_jwt_secret=SECRET)

    assert preflight(service, SITE)["access-control-allow-origin"] == SITE
    assert "access-control-allow-origin" not in preflight(service, "https://evil.example")
    refused = service.http.post("/nodes", json={}, headers={"Origin": SITE})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == SITE, "it may read why"


def test_a_named_web_site_may_also_change_things_where_no_tokens_are_asked_for(
    make_service: MakeService,
) -> None:
    service = make_service(api_cors_origins=(SITE,))
    crossing = {"Origin": SITE, "Sec-Fetch-Site": "cross-site"}

    assert service.http.post("/nodes", json={}, headers=crossing).status_code == 200
    refused = service.http.post("/nodes", json={}, headers=crossing | {"Origin": "https://a.b"})
    assert refused.status_code == 403
