"""A function over HTTP. docs/http-functions.md of Fairlead has the protocol."""

from __future__ import annotations

import json
import math
import re
import signal
import sys
import threading
import traceback
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead import Function

LARGEST_REQUEST = 32 * 1024 * 1024
IDLE_SECONDS = 10
ANSWERS = {"reconcile": "outcome", "read": "external", "perform": "result"}


class _Failure(Exception):
    def __init__(self, code: int, message: str, reason: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after = code, reason, retry_after


def serve(function: Function, port: int) -> None:
    """Serves until SIGTERM or SIGINT, and lets calls under way end."""
    server = ThreadingHTTPServer(("", port), _handler_of(function))
    server.daemon_threads = False
    for number in (signal.SIGTERM, signal.SIGINT):
        # shutdown() waits for the loop of this thread.
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"serving {function.name} on port {server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever(poll_interval=0.1)
    server.server_close()


def _handler_of(function: Function) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # A client that sends nothing more must not hold up the end.
        timeout = IDLE_SECONDS

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            if path in ("/health/liveness", "/health/readiness"):
                self._send(200, {})
            else:
                self._send(*((405, {"message": "POST"}) if path == "/" else (404, {"message": f"nothing is at {path}"})))

        def do_POST(self) -> None:
            try:
                if self.path.split("?")[0] != "/":
                    raise _Failure(404, f"there is nothing at {self.path}: POST to /")
                kind, asked = self._request()
                answer = _called(function, asked)
            except _Failure as failure:
                report = {"reason": failure.reason, "message": str(failure)}
                wait = {} if failure.retry_after is None else {"retry-after": str(math.ceil(failure.retry_after))}
                return self._send(failure.code, {name: text for name, text in report.items() if text is not None}, wait)
            if answer == {} and kind != "read":
                return self._send(204, None)
            attributes = {"specversion": "1.0", "id": str(uuid.uuid4()), "source": f"urn:fairlead:function:{function.name}"}
            event = {**attributes, "type": f"dev.fairlead.{ANSWERS[kind]}"}
            return self._send(200, answer, {f"ce-{name}": text for name, text in event.items()})

        def _request(self) -> tuple[str, dict[str, Any]]:
            """Returns what is asked, and the data of the event, of both content modes."""
            try:
                data = json.loads(self._body())
            except ValueError as error:
                raise _Failure(400, f"the body is no JSON: {error}", "InvalidEvent") from error
            event = {name: self.headers.get(f"ce-{name}") for name in ("type", "source")}
            if (self.headers.get("content-type") or "").startswith("application/cloudevents+json"):
                if not isinstance(data, dict):
                    raise _Failure(400, "a structured event is an object", "InvalidEvent")
                event, data = data, data.get("data")
            found = re.fullmatch(r"dev\.fairlead\.(reconcile|read|perform)", event.get("type") or "")
            if not event.get("type"):
                raise _Failure(400, "neither ce-type nor content type application/cloudevents+json", "InvalidEvent")
            if found is None:
                message = f"an event of type {event['type']} is nothing to reconcile: send dev.fairlead.reconcile"
                raise _Failure(422, message, "UnsupportedEvent")
            named = re.search(r"/reconcilers/([^/]+)$", event.get("source") or "")
            if named is not None and named[1] != function.name:
                message = f"this is {function.name}, not {named[1]}: give the URL of {named[1]} in spec.invoke.http.url"
                raise _Failure(421, message, "OtherFunction")
            if not isinstance(data, dict) or "object" not in data or "now" not in data:
                message = "the data of a run has `object` (null when it is gone) and `now`"
                raise _Failure(422, message, "UnsupportedEvent")
            return found[1], data

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self._part(int(self.headers.get("content-length") or 0))
            parts = [b""]
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self._part(size, sum(map(len, parts))))
                self.rfile.readline()
            return b"".join(parts)

        def _part(self, size: int, before: int = 0) -> bytes:
            if size < 0:
                raise ValueError(f"its length is {size}")
            if before + size > LARGEST_REQUEST:
                raise _Failure(413, f"the request is larger than {LARGEST_REQUEST} bytes", "RequestTooLarge")
            return self.rfile.read(size)

        def _send(self, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
            content = b"" if body is None else json.dumps(body).encode()
            self.send_response(code)
            self.send_header("fairlead-function", function.name)
            # A connection for each call, so that none that is idle holds up the end.
            self.send_header("connection", "close")
            if body is not None:
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
            for name, text in (headers or {}).items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _called(function: Function, asked: dict[str, Any]) -> dict[str, Any]:
    from fairlead import ConflictError, RetryAfterError, TerminalError

    try:
        return function.answer(asked)
    except Exception as error:  # pylint: disable=broad-except
        traceback.print_exception(error, file=sys.stderr)
        message = str(error) or type(error).__name__
        if isinstance(error, TerminalError):
            raise _Failure(422, message, error.reason) from error
        if isinstance(error, RetryAfterError):
            raise _Failure(429, message, error.reason, error.after_seconds) from error
        if isinstance(error, ConflictError):
            raise _Failure(409, message, "Conflict") from error
        raise _Failure(500, message) from error
