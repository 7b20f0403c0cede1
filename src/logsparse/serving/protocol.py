"""Connection -> uvicorn's HTTP protocol that closes connections on which no request arrives in time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds for the head of a request to arrive; uvicorn itself limits only the time until its first byte, and not of the
# first request.
HEAD_SECONDS = 15.0


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
