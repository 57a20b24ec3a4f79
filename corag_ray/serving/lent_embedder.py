"""The embedder's deployment as the `Embedder` that models take; what the caller has embedded already is lent to it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from corag_ray.models.protocols import FloatArray
from corag_ray.serving.messages import Embedded

KEPT = 512
"""Texts whose vectors are kept: the questions under way, many times over."""
WAIT_S = 60.0
"""For the embedder, with all that waits there."""


class LentEmbedder:
    """Answers from what it was lent, and otherwise asks the deployment and waits: for computing threads only."""

    def __init__(self, handle: Any, dim: int) -> None:
        """`handle` is the embedder's deployment, `dim` the width of its vectors."""
        self.dim = dim
        self.windowed = 0
        self._handle = handle
        self._lent: OrderedDict[str, Embedded] = OrderedDict()
        self._lock = threading.Lock()

    def lend(self, text: str, embedded: Embedded) -> None:
        """Keep a text's vectors until many others have come."""
        with self._lock:
            self._lent[text] = embedded
            self._lent.move_to_end(text)
            while len(self._lent) > KEPT:
                self._lent.popitem(last=False)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """See `Embedder`."""
        vectors = [embedded.vector for embedded in self._embedded(texts)]
        return np.stack(vectors) if vectors else np.zeros((0, self.dim), dtype=np.float32)

    def embed_with_tokens(self, texts: Sequence[str]) -> tuple[FloatArray, list[FloatArray]]:
        """See `Embedder`."""
        embedded = self._embedded(texts)
        vectors = [one.vector for one in embedded]
        stacked = np.stack(vectors) if vectors else np.zeros((0, self.dim), dtype=np.float32)
        return stacked, [one.tokens for one in embedded]

    def _embedded(self, texts: Sequence[str]) -> list[Embedded]:
        with self._lock:
            known = {text: self._lent[text] for text in texts if text in self._lent}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            known |= zip(missing, self._handle.embed.remote(missing).result(timeout_s=WAIT_S), strict=True)
        return [known[text] for text in texts]
