"""Every error Penstock raises on purpose.

PenstockError
├── UsageError                wrong use of a command or function: say what to change
├── ConfigurationError        a setting is wrong or missing; work pauses, documents are not blamed
│   ├── StagePaused           a stage waits until a setting is corrected
│   │   └── BudgetSpent       one run may cost no more; the others go on
│   └── StorageFull           no room for raw bytes
├── StoreError                the database cannot be used as it is
│   ├── StoreUnavailable      it does not answer, or asks to try again, as after a restart
│   │   └── StoreConflict     a deadlock with another transaction; nothing was committed
│   └── SchemaMismatch        made by a newer version, or not migrated yet
├── ServiceError              a server we started or depend on does not answer
├── Overloaded                there is more work waiting than may wait; come back later
├── Interrupted               work was stopped from outside, and is done later
├── Unmaintained              parts of maintenance failed; the others were done
├── ListingFailed             a source could not be listed (never the same as "zero documents")
├── RunRefused                another run of this source is active
├── NotFound                  no such node, run or work item in this tenant
└── DocumentFault             one document failed; carries its ErrorClass
"""

from enum import StrEnum
from typing import Any


class ErrorClass(StrEnum):
    """Why a document failed, which decides whether it is tried again."""

    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    EXTRACTOR_MISSING = "extractor_missing"
    UNKNOWN = "unknown"
    CORRUPTION = "corruption"
    UNSUPPORTED = "unsupported"
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    FORBIDDEN = "forbidden"

    @property
    def permanent(self) -> bool:
        """Whether a retry cannot help: the document itself has to change."""
        return self.value in ("corruption", "unsupported", "empty", "too_large", "forbidden")


class PenstockError(Exception):
    """Base of all errors raised on purpose; the message says what to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default they are made again from their message alone. Task runners that use processes
        # pickle what a task raises.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[PenstockError], args: tuple[Any, ...], values: dict[str, Any]
) -> PenstockError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error


class UsageError(PenstockError):
    """A command or function was used in a way that cannot work; the message says what to change."""


class ConfigurationError(PenstockError):
    """A setting is wrong or missing."""


class StagePaused(ConfigurationError):
    """A stage waits until a setting is corrected; its backlog stays as it is.

    `stage` is its name, `reason` what is wrong and what to do.
    """

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"stage {stage} is paused: {reason}")
        self.stage = stage
        self.reason = reason


class BudgetSpent(StagePaused):
    """The run `run_id` has cost PENSTOCK_MAX_COST_USD_PER_RUN; its backlog stays as it is."""

    def __init__(self, stage: str, reason: str, run_id: int) -> None:
        super().__init__(stage, reason)
        self.run_id = run_id


class StorageFull(ConfigurationError):
    """There is no room for raw bytes: free some, or name another raw store."""


class StoreError(PenstockError):
    """The database cannot be used as it is."""


class StoreUnavailable(StoreError):
    """The database does not answer, or refused for now; a retry may succeed."""


class StoreConflict(StoreUnavailable):
    """A deadlock: the database ended the transaction, and nothing of it was committed."""


class SchemaMismatch(StoreError):
    """The database's schema is not the one this version works with."""


class ServiceError(PenstockError):
    """A server that Penstock started, or depends on, does not answer."""


class Overloaded(PenstockError):
    """More work waits than may wait; nothing was written. Try again in `retry_after_seconds`."""

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Interrupted(PenstockError):
    """Work was stopped while it was under way; it is done later."""


class Unmaintained(PenstockError):
    """Parts of maintenance failed; the others were done, and the next run tries again."""


class ListingFailed(PenstockError):
    """A source could not be listed. This never means that it holds no documents."""


class RunRefused(PenstockError):
    """Another run of the same source is active: `active_run_id`."""

    def __init__(self, message: str, active_run_id: int) -> None:
        super().__init__(message)
        self.active_run_id = active_run_id


class NotFound(PenstockError):
    """The tenant has no such node, run, job or source."""


class DocumentFault(PenstockError):
    """One document failed; the others of its batch go on.

    Raise it in a custom text extractor to say why a document cannot be read:

        raise DocumentFault(ErrorClass.CORRUPTION, "the file ends in the middle of a page")

    `kind` decides whether it is tried again, and `retry_after_seconds` when; without it, the delays
    of the stage apply.
    """

    def __init__(
        self, kind: ErrorClass, message: str, *, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_seconds = retry_after_seconds
