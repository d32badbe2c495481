"""Tests of decisions: `given(website, object=hello).returns({"status": {"ready": 0}})`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairlead import Function, Object


@dataclass(frozen=True)
class Given:
    """A decision to check. Rows raise an AssertionError with each difference."""

    function: Function
    request: Object

    def returns(self, expected: Object) -> None:
        """Objects may have more fields than those that are named; lists have the same length."""
        found = list(_differences(self.function.answer(self.request), expected, "outcome"))
        assert not found, "\n".join(found)

    def raises(self, message: str) -> None:
        """The function raises an error whose message contains the text."""
        try:
            answer = self.function.answer(self.request)
        except Exception as error:  # pylint: disable=broad-except
            assert message in str(error), f"{type(error).__name__}: {error}"
            return
        raise AssertionError(f'no error with "{message}", but {answer}')


def given(function: Function, *, object: Object, **request: Any) -> Given:  # pylint: disable=redefined-builtin
    """Returns the decision on these fields of a Request, at 2030-01-01T00:00:00Z if `now` is left out."""
    return Given(function, {"now": "2030-01-01T00:00:00Z", "seed": "seed", "object": object, **request})


def _differences(found: Any, expected: Any, path: str) -> list[str]:
    if isinstance(found, dict) and isinstance(expected, dict):
        return [line for name in expected for line in _differences(found.get(name), expected[name], f"{path}.{name}")]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected))
        return [line for at, (one, wanted) in pairs for line in _differences(one, wanted, f"{path}[{at}]")]
    return [] if found == expected else [f"{path}: expected {expected!r}, returned {found!r}"]
