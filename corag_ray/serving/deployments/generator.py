"""The generator's replicas: answers in pieces, stopped between two tokens when their reader leaves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

from corag_ray.build import build_generator, build_tokenizer
from corag_ray.config import Config
from corag_ray.errors import ProtocolError
from corag_ray.serving.metrics import ANSWER_TOKENS, DEGRADED, STAGE_MS, UnderWay
from corag_ray.types import Generation


class GeneratorReplica:
    """Holds the generator, or the client of the server that is asked instead.

    A model of this process computes in one thread, whose turns the answers under way take token by token; requests to
    a server wait in a thread each.
    """

    def __init__(self, config: Config) -> None:
        """Load it."""
        server = config.generation.server
        self._generator = build_generator(config)
        self._tokenizer = build_tokenizer(config)
        self._threads = ThreadPoolExecutor(1 if server is None else server.concurrency, "generator")
        self._under_way = UnderWay("generations")

    async def stream(self, prompt: str, max_new_tokens: int, deadline_s: float) -> AsyncGenerator[str | Generation]:
        """The answer in pieces, and last of all the whole of it; at the deadline it ends as it is, by `length`."""
        loop = asyncio.get_running_loop()
        pieces = _Pieces(self._generator.stream(prompt, max_new_tokens))
        told: list[str] = []
        started = time.perf_counter()
        with self._under_way:
            try:
                while not isinstance(piece := await loop.run_in_executor(self._threads, pieces.next), Generation):
                    if piece:
                        told.append(piece)
                        yield piece
                    if time.time() >= deadline_s:
                        piece = self._cut(prompt, "".join(told))
                        break
                _note(piece, (time.perf_counter() - started) * 1000)
                yield piece
            finally:
                self._threads.submit(pieces.close)  # after the token that is being computed

    async def generate(self, prompt: str, max_new_tokens: int, deadline_s: float) -> Generation:
        """The whole answer; as `stream`."""
        async with aclosing(self.stream(prompt, max_new_tokens, deadline_s)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Generation):
                    return piece
        raise ProtocolError("the stream of an answer ended without the answer.")

    def under_way(self) -> int:
        """How many answers are being written."""
        return self._under_way.number

    def ready(self) -> bool:
        """That it answers is the answer."""
        return True

    def _cut(self, prompt: str, text: str) -> Generation:
        DEGRADED.add(because="generation_deadline")
        [prompt_tokens], [new_tokens] = self._tokenizer.count_prompts([prompt]), self._tokenizer.count([text])
        return Generation(text.strip(), prompt_tokens, new_tokens, "length")


def _note(written: Generation, milliseconds: float) -> None:
    STAGE_MS.observe(milliseconds, stage="generate")
    ANSWER_TOKENS.observe(written.prompt_tokens, of="prompt")
    ANSWER_TOKENS.observe(written.new_tokens, of="written")


class _Pieces:
    """An iterator of pieces that threads may share: the one that closes it waits for the one that is in it."""

    def __init__(self, pieces: Iterator[str | Generation]) -> None:
        self._pieces = pieces
        self._lock = threading.Lock()

    def next(self) -> str | Generation:
        with self._lock:
            for piece in self._pieces:
                return piece
        raise ProtocolError("the stream of an answer ended without the answer.")

    def close(self) -> None:
        close = getattr(self._pieces, "close", None)
        if close is not None:
            with self._lock:
                close()
