#!/usr/bin/env python3
"""The function of test/process/languages.test.ts in Python."""

import sys
import time

from fairlead import ConflictError, Function, Outcome, Request, RetryAfterError, TerminalError
from fairlead.testing import given

shops = Function("shops")


@shops.reconcile
def reconcile(request: Request) -> Outcome | None:
    print("a print is no answer")
    does = request.object["spec"]["does"]
    if does == "nothing":
        return None
    if does == "terminal":
        raise TerminalError("too small", "TooSmall")
    if does == "refuses":
        raise TerminalError("without a word")
    if does == "hurries":
        raise RetryAfterError("late", -5)
    if does == "overflows":
        return {"status": {"phase": float("nan")}}
    if does == "echoes":
        return {"status": {"phase": request.object["metadata"]["annotations"]["said"]}}
    if does == "retry":
        raise RetryAfterError("busy", 1.2, "Busy")
    if does == "conflict":
        raise ConflictError("moved")
    if does == "fails":
        raise ValueError("oops")
    if does == "waits":
        print("waits", file=sys.stderr, flush=True)
        time.sleep(1)
    if does == "draws":
        return {"status": {"phase": request.secret("password")}}
    if does == "empties":
        return {"apply": []}
    if does == "sees":
        refused = [one["reason"] for kind in request.refused.values() for one in kind]
        pods = [pod["metadata"]["name"] for pod in request.owned.get("Pod.v1", [])]
        return {"status": {"phase": " ".join([*refused, *pods, request.now, *(request.external or [])])}}
    return {"status": {"phase": "OPEN"}, "requeueAfterSeconds": 5}


@shops.read
def read(request: Request) -> list[str]:
    return [request.object["metadata"]["name"]]


@shops.perform
def perform(effect: dict, request: Request) -> dict | None:
    return {"id": 7} if effect["kind"] == "add" else None


if sys.argv[1:] == ["test"]:
    hello = {"metadata": {"name": "a"}, "spec": {"does": "opens"}}
    given(shops, object=hello).returns({"status": {"phase": "OPEN"}})
    given(shops, object={**hello, "spec": {"does": "terminal"}}).raises("too small")
    for wrong in ({"status": {"phase": "SHUT"}}, {"apply": []}):
        try:
            given(shops, object=hello).returns(wrong)
        except AssertionError as error:
            print(error)
elif __name__ == "__main__":
    shops.main()
