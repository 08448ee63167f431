"""Every error Penstock raises on purpose.

PenstockError
├── UsageError                wrong use of a command or function: say what to change
├── ConfigurationError        a setting is wrong or missing; work pauses, documents are not blamed
│   ├── StagePaused           a stage cannot work until somebody mends a setting
│   │   └── BudgetSpent       one run may cost no more; the others go on
│   └── StorageFull           no room for raw bytes; nothing is wrong with the documents
├── StoreError                the database cannot be used as it is
│   ├── StoreUnavailable      it does not answer, or asks to try again: a restart, a deadlock
│   └── SchemaMismatch        made by a newer version, or not migrated yet
├── ServiceError              a server we started or depend on does not answer
├── Overloaded                there is more work waiting than may wait; come back later
├── Interrupted               work was stopped from outside; nobody's fault, it is done later
├── Unmaintained              parts of maintenance failed; the others were done
├── ListingFailed             a source could not be listed (never the same as "zero documents")
├── RunRefused                another run of this source is active
├── NotFound                  no such node, run or work item in this tenant
└── DocumentFault             one document failed; carries its ErrorClass
"""

from enum import StrEnum


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
        """Trying again cannot help: the document itself has to change."""
        return self in _PERMANENT


_PERMANENT = frozenset(
    {
        ErrorClass.CORRUPTION,
        ErrorClass.UNSUPPORTED,
        ErrorClass.EMPTY,
        ErrorClass.TOO_LARGE,
        ErrorClass.FORBIDDEN,
    }
)


class PenstockError(Exception):
    """Base of all errors raised on purpose; the message is written for the reader."""


class UsageError(PenstockError):
    """The caller asked for something that cannot be done as asked."""


class ConfigurationError(PenstockError):
    """A setting is wrong or missing."""


class StagePaused(ConfigurationError):
    """A stage cannot work until a setting is mended; its backlog stays as it is."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"stage {stage} is paused: {reason}")
        self.stage = stage
        self.reason = reason


class BudgetSpent(StagePaused):
    """A run has cost what it may cost; its backlog stays as it is."""

    def __init__(self, stage: str, reason: str, run_id: int) -> None:
        super().__init__(stage, reason)
        self.run_id = run_id


class StorageFull(ConfigurationError):
    """There is no room for raw bytes; nothing is wrong with the documents."""


class StoreError(PenstockError):
    """The database cannot be used as it is."""


class StoreUnavailable(StoreError):
    """The database did not do it this time; trying again may go better."""


class SchemaMismatch(StoreError):
    """The database's schema is not the one this version works with."""


class ServiceError(PenstockError):
    """A server that was started, or is depended on, does not answer."""


class Overloaded(PenstockError):
    """More work waits than may wait; nothing was written."""

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Interrupted(PenstockError):
    """Work was stopped while it was under way; what was being done is done later."""


class Unmaintained(PenstockError):
    """Parts of maintenance failed; the others were done, and the next time tries again."""


class ListingFailed(PenstockError):
    """A source could not be listed. This never means that it holds no documents."""


class RunRefused(PenstockError):
    """Another run of the same source is active."""

    def __init__(self, message: str, active_run_id: int) -> None:
        super().__init__(message)
        self.active_run_id = active_run_id


class NotFound(PenstockError):
    """No such thing in this tenant."""


class DocumentFault(PenstockError):
    """One document failed. Its neighbours are none the worse."""

    def __init__(
        self, kind: ErrorClass, message: str, *, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_seconds = retry_after_seconds
