"""The bench of scale knows a miss when it sees one, and counts what it is shown."""

from bench.scaling import calls, throughput
from bench.scaling.costs import Costs, Weighed
from bench.scaling.crews import WORKER
from bench.scaling.processes import Reading, spent_between
from bench.scaling.throughput import Worked
from tests.faults.scenarios.audit import Audit

LOG = [
    'INFO:     127.0.0.1:5 - "POST /api/flow_runs/0198a2c1-7d1e-7c3a-9f00-0123456789ab/set_state '
    'HTTP/1.1" 201 Created',
    'INFO:     127.0.0.1:5 - "POST /api/flow_runs/0198a2c1-7d1e-7c3a-9f00-aaaaaaaaaaaa/set_state '
    'HTTP/1.1" 201 Created',
    'INFO:     127.0.0.1:5 - "GET /api/csrf-token?client=me HTTP/1.1" 422 Unprocessable Entity',
    'INFO:     127.0.0.1:6 - "WebSocket /api/events/in" [accepted]',
    "INFO:     connection open",
]


def worked(crew: int, seconds: float, *, doubled: int = 0, shares: float = 100.0) -> Worked:
    audit = Audit(100, 0, doubled, 0, 1, 0, 0, 0)
    spent = spent_between(Reading({}, 0, 0), Reading({}, 1, 2))
    return Worked(WORKER, crew, 100, seconds, (shares,), spent, audit)


def verdicts(*seconds: float) -> list[bool | None]:
    crews = zip(throughput.CREWS, seconds, strict=True)
    return [figure.met for figure in throughput.judge([worked(*one) for one in crews])]


def test_two_workers_do_1_8_times_as_much_as_one_and_four_3_6_times() -> None:
    assert verdicts(36.0, 20.0, 10.0) == [True, True, True]
    assert verdicts(36.0, 20.1, 10.1) == [False, False, True]


def test_a_document_that_was_done_twice_or_by_nobody_is_a_miss() -> None:
    crews = [worked(1, 36.0), worked(2, 18.0, doubled=1), worked(4, 9.0, shares=99.0)]
    assert not throughput.judge(crews)[-1].met


def test_requests_are_counted_by_method_and_route_and_sockets_apart() -> None:
    assert calls.requests_of(LOG) == {"POST /flow_runs/{id}/set_state": 2, "GET /csrf-token": 1}
    assert calls.sockets_of(LOG) == {"websocket /events/in": 1}


def test_more_than_200_calls_for_a_thousand_documents_are_too_many() -> None:
    few = calls.Called(1_000, 1.0, {"GET /flows/{id}": 200}, {}, {})
    many = calls.Called(500, 1.0, {"GET /flows/{id}": 101}, {}, {})
    assert calls.judge(few)[0].met
    assert not calls.judge(many)[0].met


def test_two_sizes_tell_the_cost_of_a_document_from_that_of_a_run() -> None:
    few, many = Weighed(20, {"bytes": 700.0}, 5), Weighed(1_020, {"bytes": 10_700.0}, 5)
    costs = Costs(few, many, 100, {})
    assert (costs.per_document("bytes"), costs.per_run("bytes")) == (10.0, 500.0)
