import pytest

from penstock.crawl.fetch import SourceCircuit
from penstock.crawl.http import HttpFault
from penstock.errors import DocumentFault, ErrorClass
from tests.together import run_together

DOWN = HttpFault(ErrorClass.UNAVAILABLE, "HTTP 500 for http://a/1", status=500)


def test_four_failures_leave_the_circuit_closed() -> None:
    circuit = SourceCircuit("acme")
    assert [circuit.failed(DOWN) for _ in range(4)] == [False] * 4
    circuit.check()


def test_the_fifth_failure_opens_it_and_says_so_once() -> None:
    circuit = SourceCircuit("acme")
    assert [circuit.failed(DOWN) for _ in range(7)] == [False] * 4 + [True, False, False]
    with pytest.raises(DocumentFault, match=r"circuit of acme is open: 5 .*HTTP 500") as refused:
        circuit.check()
    assert refused.value.kind is ErrorClass.UNAVAILABLE


def test_threads_that_fail_together_open_it_once() -> None:
    circuit = SourceCircuit("acme")
    assert sum(run_together(16, lambda _: circuit.failed(DOWN))) == 1


@pytest.mark.parametrize(
    "fault",
    [
        HttpFault(ErrorClass.UNAVAILABLE, "not found", status=404),
        HttpFault(ErrorClass.UNAVAILABLE, "gone", status=410),
        DocumentFault(ErrorClass.TOO_LARGE, "too large"),
        DocumentFault(ErrorClass.FORBIDDEN, "robots.txt does not allow it"),
    ],
)
def test_what_one_document_alone_is_to_blame_for_does_not_count(fault: DocumentFault) -> None:
    circuit = SourceCircuit("acme")
    for _ in range(10):
        circuit.failed(fault)
    circuit.check()


@pytest.mark.parametrize(
    "fault",
    [
        HttpFault(ErrorClass.TIMEOUT, "no answer"),
        HttpFault(ErrorClass.RATE_LIMITED, "slow down", status=429),
        HttpFault(ErrorClass.FORBIDDEN, "go away", status=403),
        DocumentFault(ErrorClass.UNAVAILABLE, "robots.txt cannot be read"),
    ],
)
def test_what_the_source_is_to_blame_for_counts(fault: DocumentFault) -> None:
    circuit = SourceCircuit("acme")
    for _ in range(5):
        circuit.failed(fault)
    assert circuit.is_open
