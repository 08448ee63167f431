"""What the API says when it does not do what it was asked."""

from penstock.errors import PenstockError


class ApiError(PenstockError):
    """The API refused; `status` is the HTTP status, `problem` its problem document."""

    def __init__(self, status: int, detail: str, problem: dict[str, object]) -> None:
        super().__init__(f"HTTP {status}: {detail}")
        self.status = status
        self.problem = problem


class Busy(ApiError):
    """The API asks to come back later: 429 or 503."""

    def __init__(
        self,
        status: int,
        detail: str,
        problem: dict[str, object],
        retry_after_seconds: float,
    ) -> None:
        super().__init__(status, detail, problem)
        self.retry_after_seconds = retry_after_seconds
