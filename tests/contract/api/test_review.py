"""What needs review is listed, corrected and accepted over HTTP."""

from typing import Any

import pytest

from tests.contract.api.service import MakeService, Service, problem_of
from tests.contract.api.tokens import SECRET, as_tenant, bearer, make_token

pytestmark = pytest.mark.both_databases

VAGUE = "1234567890 " * 20


def add_vague(service: Service, **body: Any) -> str:
    """A résumé in which nothing is found."""
    return str(service.add(VAGUE, extract=True, profile="resume", **body)["id"])


def correct(service: Service, node_id: str, status: int = 200, /, **fields: Any) -> Any:
    answer = service.http.patch(
        f"/nodes/{node_id}/fields", json={"fields": fields, "reason": "I know"}
    )
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else problem_of(answer, status)


def test_the_queue_is_read_page_by_page_and_empties_as_it_is_worked_on(service: Service) -> None:
    added = [add_vague(service) for _ in range(3)]
    service.work()
    first = service.get("/review", limit=2)
    rest = service.get("/review", limit=2, after=first["next"])
    assert [one["id"] for one in first["items"] + rest["items"]] == added[::-1]
    assert rest["next"] is None
    assert "missing:primary_skills" in first["items"][0]["review_reasons"]
    assert service.get("/review", reason="missing:primary_skills", limit=1)["next"] is not None
    assert service.get("/review", profile="document")["items"] == []

    service.post(f"/nodes/{added[0]}/accept", {"reason": "nothing is in it"})
    service.post(f"/nodes/{added[1]}/accept")
    assert [one["id"] for one in service.get("/review")["items"]] == [added[2]]


def test_a_correction_is_answered_found_and_embedded(service: Service) -> None:
    node_id = add_vague(service)
    service.work()
    shown = correct(service, node_id, primary_skills=[" Weir keeping ", "weir keeping", "Rowing"])
    assert shown["fields"]["primary_skills"] == ["Weir keeping", "Rowing"]
    assert shown["props"]["primary_skills"] == ["Weir keeping", "Rowing"]
    (made,) = shown["corrections"]
    assert (made["author"], made["reason"], made["holds"]) == ("local user", "I know", True)
    service.work()
    assert service.find("weir keeping", mode="vector", field="primary_skills=Rowing") == [node_id]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"salary": 5}, "the profile resume has no field 'salary': use primary_skills"),
        ({"primary_skills": "Rowing"}, "give array"),
        ({"years_experience_total": "many"}, "Total years of work as a number, or a range"),
        ({}, "no value is given"),
    ],
)
def test_what_the_profile_does_not_take_is_a_problem_that_says_what_it_takes(
    service: Service, fields: dict[str, Any], told: str
) -> None:
    node_id = add_vague(service)
    service.work()
    assert told in correct(service, node_id, 400, **fields)["detail"]
    assert service.node(node_id)["corrections"] == []


def test_what_has_no_profile_yet_cannot_be_corrected(service: Service) -> None:
    node_id = service.add(VAGUE)["id"]
    assert "has no fields yet" in correct(service, node_id, 400, title="x")["detail"]


def test_a_place_in_the_queue_that_is_none_is_refused(service: Service) -> None:
    for after in ("x", "1", "1.-2", "²·1", "1.1.1"):
        problem = service.get("/review", 400, after=after)
        assert "use `next` of the page before" in problem["detail"]


def test_the_author_is_the_subject_of_the_token(make_service: MakeService) -> None:
    service = make_service(api_jwt_secret=SECRET)
    body = {"props": {"text": VAGUE}, "extract": True, "profile": "resume"}
    node_id = service.http.post("/nodes", json=body, headers=as_tenant("acme")).json()["id"]
    service.work()
    path = f"/nodes/{node_id}/fields"
    for token in (make_token(sub="ada@example.org"), make_token()):
        fields = {"fields": {"industries": ["Hydropower"]}}
        assert service.http.patch(path, json=fields, headers=bearer(token)).status_code == 200
    shown = service.http.get(f"/nodes/{node_id}", headers=as_tenant("acme")).json()
    assert [one["author"] for one in shown["corrections"]] == ["ada@example.org", "acme"]
