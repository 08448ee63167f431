"""Which behaviour answers which request, as a test has laid down."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.testing.behaviours import Answer
from penstock.testing.chat import ChatRequest

When = str | Callable[[ChatRequest], bool] | None
"""A part of the user's text, a question about the request, or no condition."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Answers for the requests it matches: one after the other, or the same one always."""

    model: str | None
    when: When
    answers: deque[Answer]
    lasting: bool

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """Higher goes first: what says more about the request, then what will be used up."""
        return (self.when is not None, self.model is not None, not self.lasting)

    def matches(self, request: ChatRequest) -> bool:
        if self.model is not None and self.model != request.model:
            return False
        if isinstance(self.when, str):
            return self.when in request.text
        return self.when is None or self.when(request)


class Script:
    """All rules. Any thread may add one while the server asks for answers."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._lock = threading.Lock()

    def add(self, model: str | None, answers: Iterable[Answer], when: When) -> None:
        """Answers to be used once each, after those of an earlier rule for the same requests."""
        self._insert(Rule(model, when, deque(answers), lasting=False))

    def settle(self, model: str | None, answer: Answer, when: When) -> None:
        """One answer for good, instead of an earlier one for the same requests."""
        self._insert(Rule(model, when, deque([answer]), lasting=True))

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    @property
    def models(self) -> set[str]:
        with self._lock:
            return {rule.model for rule in self._rules if rule.model is not None}

    def next_answer(self, request: ChatRequest, default: Answer) -> Answer:
        with self._lock:
            rules = list(self._rules)
        # A condition is the test's own code: it runs without the lock.
        for rule in rules:
            if rule.answers and rule.matches(request):
                return rule.answers[0] if rule.lasting else rule.answers.popleft()
        return default

    def _insert(self, rule: Rule) -> None:
        with self._lock:
            # The sort is stable: a new lasting rule is put before its equals, a queue behind.
            self._rules = [rule, *self._rules] if rule.lasting else [*self._rules, rule]
            self._rules.sort(key=lambda each: each.rank, reverse=True)
