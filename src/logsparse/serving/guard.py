"""ASGI application -> the same behind limits: token, size and pace of bodies, time, cancelled requests, counts.

Everything that a client can do wrong before its request is understood is answered here, and a connection on which no
request arrives in time is closed (`Protocol`).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from logsparse.errors import LogsparseError
from logsparse.serving.batching import BusyError, Engine
from logsparse.serving.tables import MediaError, TooLargeError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

RETRY_SECONDS = 1
# Bodies in memory at once, in multiples of the largest one that is allowed.
_BODIES = 4
# Upper bounds of the latencies that are counted, in seconds.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# What anyone may see: the page, the description of the interface, health.
_OPEN = ("/", "/docs", "/openapi.json", "/plotly.min.js", "/healthz", "/readyz")
_STATIC = "/static/"
_STATUS = {MediaError: 415, TooLargeError: 413, BusyError: 503}

# Seconds for the head of a request to arrive; uvicorn itself limits only the time until its first byte, and not of the
# first request.
HEAD_SECONDS = 15.0

log = logging.getLogger("logsparse.serve")


def status_of(error: LogsparseError) -> int:
    """Return the HTTP status of an error of the client."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 422)


def error_body(rule: str, got: str, hint: str, where: str | None = None) -> dict[str, Any]:
    """Return the body of an answer that reports an error; `ErrorAnswer` describes it."""
    return {"error": {"rule": rule, "got": got, "hint": hint, **({} if where is None else {"field": where})}}


@dataclass
class Metrics:
    """Counts of one process, as Prometheus reads them."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    buckets: Counter[tuple[str, float]] = field(default_factory=Counter)

    def count(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count an answer; `path` is that of a route, so that their number is bounded."""
        self.requests[path, method, status] += 1
        self.seconds[path] += seconds  # type: ignore[assignment]
        for bound in _BUCKETS:
            self.buckets[path, bound] += seconds <= bound

    def text(self, engine: Engine) -> str:
        """Return all counts in Prometheus' text format."""
        lines = [
            "# HELP logsparse_requests_total Answers by path, method and status.",
            "# TYPE logsparse_requests_total counter",
            *(
                f'logsparse_requests_total{{path="{path}",method="{method}",status="{status}"}} {count}'
                for (path, method, status), count in sorted(self.requests.items())
            ),
            "# HELP logsparse_request_seconds Time from the first byte of a request to the end of its answer.",
            "# TYPE logsparse_request_seconds histogram",
        ]
        for path in sorted(self.seconds):
            total = sum(count for (name, _, _), count in self.requests.items() if name == path)
            lines += [
                f'logsparse_request_seconds_bucket{{path="{path}",le="{bound:g}"}} {self.buckets[path, bound]}'
                for bound in _BUCKETS
            ]
            lines += [
                f'logsparse_request_seconds_bucket{{path="{path}",le="+Inf"}} {total}',
                f'logsparse_request_seconds_sum{{path="{path}"}} {self.seconds[path]:.6f}',
                f'logsparse_request_seconds_count{{path="{path}"}} {total}',
            ]
        gauges = {"under_way": engine.under_way, "queue": engine.waiting}
        counters = {"batches": engine.batches, "batched_requests": engine.batched, "series": engine.series}
        texts = {
            "under_way": "Requests that have arrived, until their answer.",
            "queue": "Histories that wait to be decoded.",
            "batches": "Batches decoded.",
            "batched_requests": "Requests decoded in them.",
            "series": "Series forecast.",
        }
        for name, value in gauges.items():
            lines += [
                f"# HELP logsparse_{name} {texts[name]}",
                f"# TYPE logsparse_{name} gauge",
                f"logsparse_{name} {value}",
            ]
        for name, value in counters.items():
            full = f"logsparse_{name}_total"
            lines += [f"# HELP {full} {texts[name]}", f"# TYPE {full} counter", f"{full} {value}"]
        return "\n".join(lines) + "\n"


class _Refused(Exception):  # noqa: N818 - an answer, not an error of the program
    def __init__(self, status: int, rule: str, got: str, hint: str) -> None:
        super().__init__(rule)
        self.status, self.body = status, error_body(rule, got, hint)


@dataclass(eq=False)
class Guard:
    """The application behind its limits.

    Parameters
    ----------
    app
        The application.
    engine
        What answers requests; a full one is answered by 503.
    token
        Text that a client must send as `Authorization: Bearer ...`; None: anyone may ask.
    max_body
        Bytes of a body.
    timeout
        Seconds for a body to arrive, and again for its answer.
    """

    app: App
    engine: Engine
    token: str | None
    max_body: int
    timeout: float
    names: tuple[str, ...] = ()
    """Names of the models."""
    metrics: Metrics = field(default_factory=Metrics)
    held: int = 0
    """Bytes of all bodies in memory."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, answered = time.monotonic(), [0]

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered[0] = message["status"]
            await send(message)

        try:
            await self._answer(scope, receive, sending)
        except _Refused as refused:
            if not answered[0]:
                await _respond(sending, refused.status, refused.body)
        except Exception:
            log.exception("an error of the server")
            if not answered[0]:
                got, hint = "an error of the server", "report it with the lines of the server's log."
                await _respond(sending, 500, error_body("Every request must be answered.", got, hint))
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
            self.metrics.count(route, method, answered[0] or 499, time.monotonic() - began)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        # Inside another application, the path begins with that of the mount.
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if self.token is not None and path not in _OPEN and not path.startswith(_STATIC) and not self._may(headers):
            raise _Refused(
                401,
                "A request must carry the token of the server.",
                "none, or another one",
                "send the header Authorization: Bearer TOKEN.",
            )
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        self._refuse_if_full()
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(self.timeout):
                    whole = await self._read(headers, receive, body)
            except TimeoutError:
                raise _Refused(
                    408,
                    f"A body must arrive within {self.timeout:g} seconds.",
                    f"{len(body):,} bytes of it",
                    "send a smaller one, or over a faster line.",
                ) from None
            if whole:
                # Only now: a slow sender takes no place in the queue.
                self._refuse_if_full()
                await self._run(scope, bytes(body), receive, send)
        finally:
            self.held -= len(body)

    def _refuse_if_full(self) -> None:
        if self.engine.full:
            busy = BusyError(self.engine.under_way)
            raise _Refused(503, busy.rule, busy.got, busy.hint)

    def _may(self, headers: dict[bytes, bytes]) -> bool:
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        expected = (self.token or "").encode()
        return hmac.compare_digest(given.strip(), expected) and kind.lower() == b"bearer"

    async def _read(self, headers: dict[bytes, bytes], receive: Receive, body: bytearray) -> bool:
        """Read the body within the limits; return False if the client has gone."""
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self.max_body:
            raise self._too_large(f"{int(length[:20]):,} bytes")
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            part = message.get("body", b"")
            body += part
            self.held += len(part)
            if len(body) > self.max_body:
                raise self._too_large("more")
            if self.held > _BODIES * self.max_body:
                busy = BusyError(self.engine.under_way)
                raise _Refused(503, busy.rule, busy.got, busy.hint)
            if not message.get("more_body"):
                return True

    def _too_large(self, got: str) -> _Refused:
        hint = (
            "send fewer series or a shorter past, or parquet instead of csv; --max-body of the server sets the limit."
        )
        return _Refused(413, f"A body must have at most {self.max_body:,} bytes.", got, hint)

    async def _run(self, scope: Message, body: bytes, receive: Receive, send: Send) -> None:
        """Answer within the time; a client that goes away cancels its request."""
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return parts.pop() if parts else await receive()

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        self.engine.under_way += 1
        answer = asyncio.ensure_future(self.app(scope, replay, send))
        leaving = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({answer, leaving}, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                answer.result()
            elif not leaving.done():
                raise _Refused(
                    504,
                    f"An answer must take at most {self.timeout:g} seconds.",
                    "a request that takes longer",
                    "send fewer series, or raise --timeout of the server.",
                )
        finally:
            self.engine.under_way -= 1
            for task in (answer, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task


async def _respond(send: Send, status: int, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 503:
        headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
    # What is left of a body that was refused is not read.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Protocol(H11Protocol):
    """The protocol of uvicorn, which would wait forever for the rest of the head of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._clock = self.loop.call_later(HEAD_SECONDS, self._check)

    def on_response_complete(self) -> None:
        """Start the clock again."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: the request is answered as any other."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._clock.cancel()
        super().connection_lost(exc)

    def _check(self) -> None:
        # uvicorn's own annotation leaves out that there is no request at first.
        request: Any = self.cycle
        if request is not None and not request.response_complete:
            self._idle_since = self.loop.time()
        left = self._idle_since + HEAD_SECONDS - self.loop.time()
        if left <= 0:
            self.transport.close()
        else:
            self._clock = self.loop.call_later(left, self._check)
