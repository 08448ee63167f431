"""The limit of model calls that all flow runs of a Prefect server share."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import ObjectNotFound, PrefectException, PrefectHTTPStatusError
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from penstock.errors import Interrupted

LIMIT = "penstock-llm"
# The slots of a process that was killed come back after this time.
LEASE_SECONDS = 120.0
# How long the batches of a process share slots before another process may have its turn.
TURN_SECONDS = 30.0
_ASK_AGAIN_SECONDS = 1.0
# A server on SQLite answers so for moments.
_OVERLOADED_SECONDS = 5.0
# After the server did not answer.
AWAY_SECONDS = 60.0
_WAITS = (
    "waiting for slots of the limit %s, since other flow runs call models; if none does, the "
    "server has lost who took them: `prefect gcl inspect` shows them, `prefect gcl update` resets"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Lease:
    """Slots of the server; without an id there is nothing to give back."""

    slots: int
    id: UUID | None = None


class PrefectModelSlots:
    """Slots of Prefect's global concurrency limit `penstock-llm`: see
    `penstock.llm.chain.ModelSlots`.

    Prefect hands slots over slowly, so a process takes them together and its batches share them.
    Without the limit, or without an answer of the server, calls are made as if it did not exist.
    """

    def __init__(self, limit: str = LIMIT) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._batches = 0
        self._lease = _Lease(0)
        self._turn_is_over = False
        self._away_until = 0.0
        self._given_back = threading.Event()

    @contextmanager
    def hold(self, wanted: int, stopping: threading.Event) -> Iterator[int]:
        with self._changed:
            if self._lease.id is None and 0.0 < self._away_until <= time.monotonic():
                # The server may be back: batches that overlap for ever would never ask it.
                self._turn_is_over = True
            self._changed.wait_for(lambda: not (self._batches and self._turn_is_over))
            if not self._batches:
                self._begin_turn(self._take(wanted, stopping))
            self._batches += 1
        try:
            yield self._lease.slots
        finally:
            with self._changed:
                self._batches -= 1
                if not self._batches:
                    self._given_back.set()
                    _give_back(self._lease)
                self._changed.notify_all()

    def _begin_turn(self, lease: _Lease) -> None:
        self._lease, self._turn_is_over, self._given_back = lease, False, threading.Event()
        if lease.id is not None:
            keep = (lease.id, self._given_back)
            name = "penstock-model-slots"
            threading.Thread(target=self._keep, args=keep, daemon=True, name=name).start()

    def _keep(self, lease_id: UUID, given_back: threading.Event) -> None:
        """Renew the lease. Where another process would find too few slots, batches that begin from
        now on wait until these were given back and taken again."""
        while not given_back.wait(TURN_SECONDS):
            # Perhaps next time: a lease outlasts several renewals.
            with suppress(httpx.HTTPError, PrefectException), _client() as client:
                client.renew_concurrency_lease(lease_id, LEASE_SECONDS)
                limit = client.read_global_concurrency_limit_by_name(self._limit)
                if limit.limit - limit.active_slots < self._lease.slots:
                    self._turn_is_over = True

    def _take(self, wanted: int, stopping: threading.Event) -> _Lease:
        """Wait for slots; as many as are wanted, or as there are at all."""
        began, told = time.monotonic(), False
        while time.monotonic() >= self._away_until:
            try:
                with _client() as client:
                    lease = _ask(client, self._limit, wanted)
            except (httpx.HTTPError, PrefectException) as error:
                if _is_overloaded(error) and time.monotonic() - began < _OVERLOADED_SECONDS:
                    stopping.wait(_ASK_AGAIN_SECONDS)
                    continue
                self._away_until = time.monotonic() + AWAY_SECONDS
                log.warning(
                    "models are called without regard to the limit %s: Prefect's server did not "
                    "give its slots (%s)",
                    self._limit,
                    error,
                )
                break
            self._away_until = 0.0
            if lease is not None:
                return lease
            if not told and time.monotonic() - began >= TURN_SECONDS:
                told = True
                log.warning(_WAITS, self._limit)
            if stopping.wait(_ASK_AGAIN_SECONDS):
                raise Interrupted(f"stopped while waiting for slots of the limit {self._limit}")
        return _Lease(wanted)


def _ask(client: SyncPrefectClient, name: str, wanted: int) -> _Lease | None:
    """Slots; None while too few are free."""
    try:
        limit = client.read_global_concurrency_limit_by_name(name)
    except ObjectNotFound:
        return _Lease(wanted)
    if not limit.active:
        return _Lease(wanted)
    slots = min(wanted, limit.limit)
    if slots == 0:
        return None
    try:
        given = client.increment_concurrency_slots_with_lease(
            [name], slots, "concurrency", LEASE_SECONDS
        )
    except PrefectHTTPStatusError as error:
        if error.response.status_code == httpx.codes.LOCKED:
            return None
        raise
    return _Lease(slots, UUID(given.json()["lease_id"]))


def _is_overloaded(error: Exception) -> bool:
    return (
        isinstance(error, PrefectHTTPStatusError)
        and error.response.status_code == httpx.codes.SERVICE_UNAVAILABLE
    )


def _give_back(lease: _Lease) -> None:
    if lease.id is None:
        return
    deadline = time.monotonic() + _OVERLOADED_SECONDS
    while True:
        try:
            with _client() as client:
                client.release_concurrency_slots_with_lease(lease.id)
            return
        except (httpx.HTTPError, PrefectException) as error:
            if not _is_overloaded(error) or time.monotonic() > deadline:
                # Its lease will end.
                log.info("slots of model calls could not be given back: %s", error)
                return
        time.sleep(_ASK_AGAIN_SECONDS)


@contextmanager
def _client() -> Iterator[SyncPrefectClient]:
    """One that does not try again by itself: the calls wait meanwhile."""
    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
        get_client(sync_client=True) as client,
    ):
        yield client
