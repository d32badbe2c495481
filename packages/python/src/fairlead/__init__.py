"""Functions of Fairlead in Python.

    from fairlead import Function, Outcome, Request, TerminalError

    website = Function("website")

    @website.reconcile
    def reconcile(request: Request) -> Outcome:
        return {"status": {"ready": len(request.owned.get("Pod.v1", []))}}

    if __name__ == "__main__":
        website.main()

`main` serves over HTTP if PORT is set, and otherwise answers the requests on standard input: by `fairlead serve --exec`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO, TypedDict, TypeVar

__all__ = [
    "ConflictError",
    "Event",
    "Condition",
    "Function",
    "Outcome",
    "Request",
    "RetryAfterError",
    "TerminalError",
]

Object = dict[str, Any]
Called = TypeVar("Called")


class Condition(TypedDict, total=False):
    type: str
    status: Literal["True", "False", "Unknown"] | None
    reason: str
    message: str


class Event(TypedDict):
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Outcome(TypedDict, total=False):
    """The desired state. A field that is left out stays as it is."""

    apply: list[Object]
    patch: list[Object]
    act: list[Object]
    status: Object
    conditions: list[Condition]
    metadata: dict[str, dict[str, str]]
    deleteObject: bool
    events: list[Event]
    metrics: list[Object]
    requeueAfterSeconds: float
    requeueAt: str
    effect: Object


@dataclass(frozen=True)
class Request:
    """The input of a decision. Decide on it alone: an equal request must give an equal outcome."""

    object: Object
    owned: dict[str, list[Object]] = field(default_factory=dict)
    related: dict[str, list[Object]] = field(default_factory=dict)
    attempt: int = 0
    now: str = "2030-01-01T00:00:00Z"
    seed: str | None = None
    finalizing: bool = False
    refused: dict[str, list[Object]] = field(default_factory=dict)
    external: Any = None
    performed: Object | None = None

    def secret(self, name: str) -> str:
        """Returns 32 random letters and digits: the same for one name in a run. Call it only if no Secret is stored."""
        if self.seed is None:
            raise ValueError(f'no secret "{name}" can be drawn: the request has no seed')
        seed = self.seed.encode()
        drawn = [hmac.new(seed, f"{at} {name}".encode(), hashlib.sha512).digest() for at in range(2)]
        return re.sub("[^A-Za-z0-9]", "", "".join(base64.b64encode(one).decode() for one in drawn))[:32]


class TerminalError(Exception):
    """Stops the retries of an object until something changes: the input is wrong."""

    def __init__(self, message: str, reason: str = "TerminalError") -> None:
        super().__init__(message)
        self.reason = reason


class RetryAfterError(Exception):
    """Retries the call after so many seconds, without backoff."""

    def __init__(self, message: str, after_seconds: float, reason: str = "RetryAfter") -> None:
        super().__init__(message)
        # A time that has passed means now.
        self.after_seconds = max(0.0, after_seconds)
        self.reason = reason


class ConflictError(Exception):
    """Retries the call at once: the state that it decided on has changed meanwhile."""


Decide = Callable[[Request], Outcome | None]
Read = Callable[[Request], Any]
Perform = Callable[[Object, Request], Any]


class Function:
    """The function of a Reconciler, which has its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._reconcile: Decide | None = None
        self._finalize: Decide | None = None
        self._read: Read | None = None
        self._perform: Perform | None = None

    def reconcile(self, decide: Decide) -> Decide:
        """Decorates the function that returns what should exist."""
        self._reconcile = decide
        return decide

    def finalize(self, decide: Decide) -> Decide:
        """Decorates the function that is called instead while the object is being deleted."""
        self._finalize = decide
        return decide

    def read(self, read: Read) -> Read:
        """Decorates the function that returns the state of the external system, as JSON."""
        self._read = read
        return read

    def perform(self, perform: Perform) -> Perform:
        """Decorates the function that performs an effect, and returns its result."""
        self._perform = perform
        return perform

    def answer(self, asked: Object) -> Object:
        """Returns the body of the answer to the body of a request, as plain JSON. Raises the errors of the function."""
        answer: Object = json.loads(json.dumps(self._answer(asked), allow_nan=False))
        return answer

    def _answer(self, asked: Object) -> Object:
        ask = asked.get("ask")
        if asked.get("object") is None:
            return {"external": None} if ask == "read" else {}
        known = {name: asked[name] for name in Request.__dataclass_fields__ if name in asked}
        request = Request(**known)
        if ask == "read":
            return {"external": self._demand(self._read, "read")(request)}
        if ask == "perform":
            result = self._demand(self._perform, "perform")(asked["effect"], request)
            return {} if result is None else {"result": result}
        if request.finalizing:
            return dict(self._demand(self._finalize, "finalize")(request) or {})
        if "deletionTimestamp" in request.object["metadata"]:
            return {}
        return dict(self._demand(self._reconcile, "reconcile")(request) or {})

    def _demand(self, called: Called | None, name: str) -> Called:
        if called is None:
            raise RuntimeError(f"this version of the function of Reconciler {self.name} has no {name}")
        return called

    def answer_lines(self, requests: Iterable[bytes | str] | None = None, answers: TextIO = sys.stdout) -> None:
        """Answers each line with one line, as `fairlead serve --exec` asks, with --lines and without."""
        printed = sys.stdout
        # What the function prints is no answer.
        sys.stdout = sys.stderr
        try:
            # As bytes: JSON is UTF-8, whatever the locale.
            for line in sys.stdin.buffer if requests is None else requests:
                asked = json.loads(line)
                try:
                    answer = self.answer(asked)
                except Exception as error:  # pylint: disable=broad-except
                    answer = {"error": _reported(error)}
                answers.write(json.dumps({"id": asked.get("id"), **answer}) + "\n")
                answers.flush()
        finally:
            sys.stdout = printed

    def main(self) -> None:
        """Serves over HTTP on PORT, if it is set; otherwise answers the requests on standard input."""
        if "PORT" not in os.environ:
            return self.answer_lines()
        from fairlead.server import serve

        return serve(self, int(os.environ["PORT"]))


def _reported(error: Exception) -> Object:
    """Returns the error as an executable reports it, and logs its traceback."""
    traceback.print_exception(error, file=sys.stderr)
    report: Object = {"message": str(error) or type(error).__name__}
    if isinstance(error, TerminalError):
        return {**report, "reason": error.reason, "terminal": True}
    if isinstance(error, RetryAfterError):
        return {**report, "reason": error.reason, "retryAfterSeconds": error.after_seconds}
    return report
