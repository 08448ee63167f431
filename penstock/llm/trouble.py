"""What may come back from a model's endpoint instead of an answer.

Trouble
├── ModelGone      the endpoint does not know this model, or no longer
├── TooLong        the question is larger than the endpoint takes
├── MustWait       the endpoint asks to wait: nobody's fault
│   └── EndpointDown   it has not answered for a while: nobody's fault either
├── NotWanted      nobody waits for an answer any more: no call was made
└── CallFailed     this call failed; another model, or a later attempt, may do better
    └── Unreached      nobody took the call, so it says nothing about the question
"""

from penstock.errors import ErrorClass


class Trouble(Exception):
    """Base of all of them; the message is for people."""


class ModelGone(Trouble):
    pass


class TooLong(Trouble):
    pass


class MustWait(Trouble):
    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class EndpointDown(MustWait):
    pass


class NotWanted(Trouble):
    pass


class CallFailed(Trouble):
    def __init__(self, reason: str, message: str, kind: ErrorClass = ErrorClass.UNKNOWN) -> None:
        super().__init__(message)
        self.reason = reason
        self.kind = kind
        self.seconds = 0.0
        """How long it took to fail."""


class Unreached(CallFailed):
    pass
