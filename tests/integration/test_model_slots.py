"""The limit of model calls on a real Prefect server."""

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import (
    GlobalConcurrencyLimitCreate,
    GlobalConcurrencyLimitUpdate,
)
from prefect.settings import PREFECT_API_URL, temporary_settings

from deployments.model_limit import CALLS, install_model_limit
from penstock.errors import Interrupted
from penstock.local.processes import free_port
from tasks import model_slots
from tasks.model_slots import PrefectModelSlots
from tests.together import wait_until

pytestmark = pytest.mark.usefixtures("prefect")

NAME = "penstock-llm-of-this-test"
NEVER = threading.Event()


@pytest.fixture
def client(prefect: object) -> Iterator[SyncPrefectClient]:
    del prefect
    with get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def limit(client: SyncPrefectClient) -> Iterator[str]:
    client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=NAME, limit=4))
    yield NAME
    client.delete_global_concurrency_limit_by_name(NAME)


def taken(client: SyncPrefectClient) -> int:
    return client.read_global_concurrency_limit_by_name(NAME).active_slots


def test_without_the_limit_calls_are_made_as_they_always_were() -> None:
    with PrefectModelSlots("there is no such limit").hold(16, NEVER) as granted:
        assert granted == 16


def test_a_process_takes_its_slots_once_for_all_its_batches(
    client: SyncPrefectClient, limit: str
) -> None:
    ours = PrefectModelSlots(limit)
    with ours.hold(3, NEVER) as first:
        with ours.hold(3, NEVER) as second:
            assert (first, second) == (3, 3)
            assert taken(client) == 3
        assert taken(client) == 3
    assert taken(client) == 0


def test_more_slots_than_there_are_at_all_are_not_waited_for(limit: str) -> None:
    with PrefectModelSlots(limit).hold(16, NEVER) as granted:
        assert granted == 4


def test_a_limit_that_was_switched_off_limits_nothing(
    client: SyncPrefectClient, limit: str
) -> None:
    off = GlobalConcurrencyLimitUpdate(active=False)
    client.update_global_concurrency_limit(limit, off)
    with PrefectModelSlots(limit).hold(16, NEVER) as granted:
        assert granted == 16


def test_another_process_waits_for_its_turn_which_comes_while_the_first_has_more_to_do(
    client: SyncPrefectClient, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_slots, "TURN_SECONDS", 0.2)
    monkeypatch.setattr(model_slots, "_ASK_AGAIN_SECONDS", 0.05)
    first, second = PrefectModelSlots(limit), PrefectModelSlots(limit)
    had_its_turn = threading.Event()

    def keep_busy() -> None:
        """Two threads whose batches overlap: there is always one under way."""
        while not had_its_turn.is_set():
            with first.hold(4, NEVER):
                had_its_turn.wait(0.3)

    def have_a_turn() -> int:
        with second.hold(4, NEVER) as granted:
            had_its_turn.set()
            return granted

    with ThreadPoolExecutor(3) as pool:
        busy = [pool.submit(keep_busy)]
        wait_until(lambda: taken(client) == 4)
        busy.append(pool.submit(keep_busy))
        try:
            assert pool.submit(have_a_turn).result(timeout=60) == 4
        finally:
            had_its_turn.set()
        for one in busy:
            one.result(timeout=60)
    assert taken(client) == 0


def test_a_stop_ends_the_wait_for_slots(limit: str) -> None:
    stopping = threading.Event()
    with PrefectModelSlots(limit).hold(4, NEVER), ThreadPoolExecutor(1) as pool:

        def wait() -> None:
            with PrefectModelSlots(limit).hold(4, stopping):
                raise AssertionError("there were no slots left")

        waiting = pool.submit(wait)
        stopping.set()
        with pytest.raises(Interrupted, match=NAME):
            waiting.result(timeout=60)


def test_without_prefects_server_the_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    ours = PrefectModelSlots()
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}):
        for _ in range(2):
            with ours.hold(16, NEVER) as granted:
                assert granted == 16
    assert caplog.text.count("models are called without regard to the limit penstock-llm") == 1


def test_slots_are_taken_when_prefects_server_is_back_though_batches_overlap(
    client: SyncPrefectClient, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_slots, "AWAY_SECONDS", 0.01)
    ours = PrefectModelSlots(limit)

    with ThreadPoolExecutor(1) as pool:
        with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}):
            first = ours.hold(3, NEVER)
            first.__enter__()
        time.sleep(0.05)
        second = pool.submit(slots_of_a_batch, ours, client)
        assert not wait([second], timeout=1.0).done
        first.__exit__(None, None, None)
        assert second.result(timeout=60) == 3


def slots_of_a_batch(ours: PrefectModelSlots, client: SyncPrefectClient) -> int:
    with ours.hold(3, NEVER):
        return taken(client)


def test_the_limit_is_made_once_and_a_changed_number_is_kept(client: SyncPrefectClient) -> None:
    name = f"{NAME}-installed"
    assert install_model_limit(name).startswith("created")
    assert client.read_global_concurrency_limit_by_name(name).limit == CALLS
    client.update_global_concurrency_limit(name, GlobalConcurrencyLimitUpdate(limit=7))
    assert install_model_limit(name).endswith(": 7")
    client.delete_global_concurrency_limit_by_name(name)
