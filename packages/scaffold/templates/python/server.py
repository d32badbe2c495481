"""Answers Fairlead's requests over HTTP. PORT: where it listens (default 8080)."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from website import reconcile

LARGEST_REQUEST = 32 * 1024 * 1024


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, {})

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > LARGEST_REQUEST:
            self.close_connection = True
            return self.answer(413, {"reason": "TooLarge", "message": f"a request has {LARGEST_REQUEST} bytes at most"})
        try:
            outcome = reconcile(json.loads(self.rfile.read(length)))
        except Exception as error:  # The object is tried again, with growing pauses.
            return self.answer(500, {"reason": type(error).__name__, "message": str(error)})
        self.answer(200, outcome, {"fairlead-function": "website", "ce-type": "dev.fairlead.outcome"})

    def answer(self, code, body, headers=None):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), Handler)
    print(f"listening on port {server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
