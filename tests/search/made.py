"""A reranker and a query for tests of the comparison."""

from corag_ray.core.strategy import Candidates
from corag_ray.types import Chunk, Evidence, Question, Score, Span
from jobs.budgets.searching import Query, Remembered


class Worth:
    """Scores a combination by a function of it; calibrated values are a tenth of raw ones."""

    name, monotone, memoised = "worth", False, False

    def __init__(self, worth, order_sensitive=False):
        self.worth, self.order_sensitive, self.asked = worth, order_sensitive, []

    def prepare(self, query, candidates, rows):
        return query

    def score(self, pairs):
        self.asked += [combination for _, combination in pairs]
        return [Score(raw, raw / 10) for raw in (self.worth(combination) for _, combination in pairs)]


def query_of(costs, evidence=(0,)):
    """Each candidate is a document of its own; those of `evidence` hold the question's."""
    chunks = tuple(Chunk(n, f"d{n}", 0, 0, 4, f"text {n}", cost) for n, cost in enumerate(costs))
    wanted = tuple(Evidence(Span(f"d{n}", 0, 4)) for n in evidence)
    k = len(chunks)
    candidates = Candidates(tuple(costs), tuple(1 / (1 + n) for n in range(k)), tuple(range(k)), (0,) * k)
    return Query(Question("q", "why?", evidence=wanted), chunks, tuple(range(k)), candidates)


def known(worth, order_sensitive=False):
    return Remembered(Worth(worth, order_sensitive), None)
