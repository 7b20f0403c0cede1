"""A local web server that truncates, redirects, stalls, ignores ranges or fails, as a test asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    files: dict[str, bytes] = field(default_factory=dict)
    etag: str | None = '"one"'
    modified: str | None = None
    ranges: bool = True
    honours_if_range: bool = True
    chunked: bool = False
    cuts: list[int] = field(default_factory=list)
    """Bytes sent of each of the first responses; later ones are complete."""
    statuses: list[int] = field(default_factory=list)
    """Status codes of the first responses, instead of files."""
    asked: list[dict[str, str]] = field(default_factory=list)
    length: str | None = None
    """A false Content-Length."""
    moved_to: str | None = None
    """Target of a redirect."""
    drip: float = 0.0
    """Seconds between two bytes of a slow response."""
    sent: int = 0
    port: int = 0

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    told: Server

    def do_GET(self) -> None:
        told = self.told
        told.asked.append(dict(self.headers.items()))
        self.close_connection = True
        name = self.path.lstrip("/")
        if told.statuses or name not in told.files:
            self.send_error(told.statuses.pop(0) if told.statuses else 404)
            return
        if told.moved_to:
            self.send_response(302)
            self.send_header("Location", told.moved_to)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content, begin = told.files[name], self._begin()
        if begin > len(content):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        for header, value in (("ETag", told.etag), ("Last-Modified", told.modified)):
            if value:
                self.send_header(header, value)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self._answer(content[begin:])

    def _begin(self) -> int:
        asked, condition = self.headers.get("Range"), self.headers.get("If-Range")
        stale = self.told.honours_if_range and condition not in (self.told.etag, self.told.modified)
        return 0 if not (self.told.ranges and asked) or stale else int(asked.removeprefix("bytes=").rstrip("-"))

    def _answer(self, body: bytes) -> None:
        told = self.told
        part = body[: told.cuts.pop(0)] if told.cuts else body
        told.sent += len(part)
        if told.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(f"{len(body):x}\r\n".encode() + part + (b"\r\n0\r\n\r\n" if part == body else b""))
        else:
            self.send_header("Content-Length", told.length or str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # a client that refuses the response hangs up
                for at in range(0, len(part), 1 if told.drip else len(part)):
                    self.wfile.write(part[at : at + 1] if told.drip else part)
                    time.sleep(told.drip)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"told": server}))
    server.port = httpd.server_address[1]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
