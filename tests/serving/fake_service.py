"""A service without deployments, and the HTTP application over it."""

from fastapi.testclient import TestClient

from corag_ray.core.strategy import Candidates
from corag_ray.core.trace import Trace, TracedNode
from corag_ray.selection import Choice
from corag_ray.serving.http.app import make_app
from corag_ray.serving.messages import Ranked, Retrieved, Selected, Stage
from corag_ray.serving.settings import read_settings
from corag_ray.types import Chunk, Generation, Score

CHUNK = Chunk(255, "tower.md", 0, 3, 20, "330 metres", 9)
TRACE = Trace(
    nodes=(TracedNode((0,), 9, None, 1, Score(1.099, 0.75)), TracedNode((1,), 9, None, 2, None)),
    is_tree=False,
    best=((0,), 0.75),
    stopped="all_scored",
    reading="calibrated",
    candidates=Candidates((9, 9), (0.5, 0.25), (0, 0), (0, 1)),
    budget_tokens=500,
)
PIECES = ["It is ", "330 metres", " high."]


class FakeService:
    """Answers the same always, keeps what it was asked, and raises what it is told to."""

    def __init__(self):
        self.asked, self.error, self.pieces_error, self.closed = [], None, None, 0
        self.parts = {"driver": True, "index": True}
        self.degraded = ()
        self.kept = {}

    def selected(self, asked):
        self.asked.append(asked)
        if self.error:
            raise self.error
        choice = Choice("retrieval", [CHUNK], 0.75, 591, 591, reranker="late_interaction", prompt="the prompt")
        choice.effective_budget_tokens, choice.context_tokens, choice.prompt_tokens = 500, 8, 21
        choice.latency_ms = {"search": 1.23456}
        stopped_by = "deadline" if self.degraded else "finished"
        choice.trace = TRACE if asked.explain else None
        settings = {"strategy": "policy_tree"} if asked.explain else {}
        return Selected("corag", choice, (CHUNK, CHUNK), "1-abc", stopped_by, self.degraded, settings)

    async def select(self, asked):
        return self.selected(asked)

    async def stages(self, asked):
        yield Stage("retrieved", 2.0, {"candidates": 60})
        yield self.selected(asked)

    async def generate(self, prompt, max_new_tokens, deadline_s):
        return Generation("It is 330 metres high.", 21, 6, "stop")

    async def stream(self, prompt, max_new_tokens, deadline_s):
        try:
            for piece in PIECES:
                yield piece
                if self.pieces_error:
                    raise self.pieces_error
            yield Generation("".join(PIECES), 21, 6, "stop")
        finally:
            self.closed += 1

    async def rerank(self, asked, combine):
        self.asked.append(asked)
        if self.error:
            raise self.error
        selected = self.selected(asked) if combine else None
        if selected:
            selected.choice.selection = [Chunk(0, "1", 0, 0, 1, "b", 4), Chunk(0, "0", 0, 0, 1, "a", 5)]
        return Ranked(((1, 0.9), (0, 0.5), (2, None)), "late_interaction", 12, selected)

    async def search(self, text, num_candidates, deadline_s):
        self.asked.append((text, num_candidates))
        return Retrieved((7,), (0.5,), (CHUNK,), "1-abc")

    async def keep(self, request_id, text):
        self.kept[request_id] = text

    async def explanation(self, request_id):
        return self.kept.get(request_id)

    async def ready(self):
        return self.parts


def client_of(service, args=None, keys=()):
    app = make_app(service, read_settings(args or {}), keys)
    return TestClient(app, raise_server_exceptions=False)


def events_of(response):
    """(name or None, data) of each server-sent event."""
    import json

    told = []
    for block in response.text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines())
        data = lines["data"]
        told.append((lines.get("event"), data if data == "[DONE]" else json.loads(data)))
    return told
