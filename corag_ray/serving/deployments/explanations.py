"""Explanations of the last requests that asked for one: one store, which every ingress writes and reads."""

from __future__ import annotations

from collections import OrderedDict


class ExplanationStore:
    """Keeps JSON texts by request id, the last ones, bounded in number and in bytes."""

    def __init__(self, most: int, most_bytes: int) -> None:
        """A text of more than `most_bytes` is not kept at all."""
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._texts: OrderedDict[str, bytes] = OrderedDict()

    async def put(self, request_id: str, text: bytes) -> None:
        """Keep a text, and let the oldest go for it."""
        self._bytes -= len(self._texts.pop(request_id, b""))
        if len(text) > self._most_bytes:
            return
        self._texts[request_id] = text
        self._bytes += len(text)
        while len(self._texts) > self._most or self._bytes > self._most_bytes:
            _, oldest = self._texts.popitem(last=False)
            self._bytes -= len(oldest)

    async def get(self, request_id: str) -> bytes | None:
        """A request's text; None where it was never kept, or is no more."""
        return self._texts.get(request_id)

    def ready(self) -> bool:
        """That it answers is the answer."""
        return True
