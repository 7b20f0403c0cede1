"""Connection -> uvicorn's HTTP protocol that closes connections on which no request arrives in time."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds for the head of a first request to arrive; uvicorn itself limits only later ones.
HEAD_SECONDS = 15.0


class Protocol(H11Protocol):
    """The protocol of uvicorn, which would wait forever for the first request of a connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._expiry = self.loop.call_later(HEAD_SECONDS, self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._expiry.cancel()
        super().connection_lost(exc)

    def _expire(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()
