"""The composed application in one process (Serve's local testing mode): what the builder binds works together."""

import time

import pytest
from ray import serve

from corag_ray.batch.index_folder import ensure_index, open_corpus
from corag_ray.build import build_answerer, build_selector, describe
from corag_ray.identity import index_spec
from corag_ray.serving.app import asking_for, build, compose
from corag_ray.serving.deployments.ingress import DeployedService
from corag_ray.serving.messages import Asked, Stage
from corag_ray.serving.settings import read_settings
from corag_ray.settling import settle
from corag_ray.types import Generation, Question

pytestmark = pytest.mark.models
METHODS = ["naive_rag", "corag", "mmr", "combined", "by_terms", "expert", "no_context"]
EXPERT = {"strategy": {"kind": "greedy"}, "reranker": "passage_facts"}


class Probe:
    """Stands in the ingress's place, and asks what it would ask."""

    def __init__(self, driver, generator, explanations):
        self.service = DeployedService(driver, generator, explanations)

    async def call(self, name, *arguments):
        return await getattr(self.service, name)(*arguments)

    async def read(self, name, *arguments):
        return [item async for item in getattr(self.service, name)(*arguments)]


@pytest.fixture(scope="module")
def run(serving_args):
    """Settings, settled configuration, index folder, spec and data set of the tiny corpus."""
    config = serving_args["config"]
    settings = read_settings(serving_args | {"config": config | {"methods": config["methods"] | {"expert": EXPERT}}})
    config = asking_for(settings.config, list(settings.pools))
    dataset, folder = open_corpus(settings.index.root, config)
    config = settle(config)
    ensure_index(config, dataset, folder)
    return settings, config, folder, index_spec(config, dataset), dataset


@pytest.fixture(scope="module")
def batch(run):
    """What the batch pipeline selects and answers for five questions, by every method."""
    settings, _, folder, spec, dataset = run
    config = settle(settings.config)
    config = config.model_copy(update={"methods": {method: config.methods[method] for method in METHODS}})
    choices = build_selector(config, folder, spec, keep_searches=True).select(dataset.questions[:5])
    return list(zip(choices, build_answerer(config).answer(choices), strict=True))


@pytest.fixture(scope="module")
def probe(run):
    settings, config, folder, spec, _ = run
    bound = compose(settings, config, folder, spec)._bound_deployment
    _, *parts = bound.init_args
    deployment = serve.deployment(Probe).options(name="probe")
    return serve.run(deployment.bind(*parts), _local_testing_mode=True, name="composition")


def asked(question, method, **more):
    return Asked(Question("r", question), 64, 4, time.time() + 60.0, method=method, **more)


@pytest.mark.parametrize("method", METHODS)
def test_requests_are_answered_and_explained_as_the_batch_pipeline_would(run, batch, probe, method):
    for choices, answers in batch:
        expected = choices.methods[method]
        selected = probe.call.remote("select", asked(choices.question.text, method, explain=True)).result()
        assert selected.degraded == ()
        assert selected.settings == describe(run[0].config, method)
        for field in ("selection", "score", "pairs", "prompt", "context_tokens", "prompt_tokens", "notes", "trace"):
            assert getattr(selected.choice, field) == getattr(expected, field), field
        windows = 1 if method == "expert" else None  # a cross-encoder alone has one
        assert selected.choice.selection_windows == expected.selection_windows == windows
        written = probe.call.remote("generate", selected.choice.prompt, 4, time.time() + 60.0).result()
        assert written == answers[method]


def test_stages_come_before_the_selection_and_pieces_before_the_answer(run, probe):
    question = run[-1].questions[0].text
    *stages, selected = probe.read.remote("stages", asked(question, "corag")).result()
    assert [stage.name for stage in stages if isinstance(stage, Stage)] == ["configured", "retrieved", "searched"]
    *pieces, answer = probe.read.remote("stream", selected.choice.prompt, 4, time.time() + 60.0).result()
    assert isinstance(answer, Generation)
    assert "".join(pieces) == answer.text


def test_a_generation_at_its_deadline_ends_where_it_is(run, probe):
    *pieces, answer = probe.read.remote("stream", "Write a long story about tea.", 40, time.time() - 1.0).result()
    assert answer.finish_reason == "length"
    assert answer.new_tokens < 40
    assert "".join(pieces).strip() == answer.text


@pytest.mark.parametrize("reranker", ["late_interaction", "combination", "bm25", "pooled_embedding"])
def test_documents_that_are_in_no_index_are_ranked_by_every_reranker(probe, reranker):
    documents = ("Tea is grown on slopes.", "The tower is 330 metres high.", "The tower has three floors.")
    request = asked("How high is the tower?", "corag", reranker=reranker, documents=documents)
    ranked = probe.call.remote("rerank", request, True).result()
    assert ranked.reranker == reranker
    assert ranked.ranking[0][0] == 1
    assert ranked.ranking[-1][0] == 0
    scores = [score for _, score in ranked.ranking]
    assert scores == sorted(scores, reverse=True)
    assert "1" in [chunk.doc_id for chunk in ranked.selected.choice.selection]


def test_the_first_stage_can_be_asked_alone_and_all_parts_are_ready(probe):
    found = probe.call.remote("search", "When was the harbour of Ostrel dug?", 3, time.time() + 60.0).result()
    assert found.chunks[0].doc_id == "harbour"
    assert len(found.chunks) == 3
    parts = probe.call.remote("ready").result()
    assert set(parts) >= {"driver", "generator", "embedder", "index", "agent", "late_interaction"}
    assert all(parts.values())


def test_explanations_are_kept_where_every_ingress_finds_them(probe):
    assert probe.call.remote("explanation", "r-1").result() is None
    probe.call.remote("keep", "r-1", b"{}").result()
    assert probe.call.remote("explanation", "r-1").result() == b"{}"


def test_the_builder_makes_the_index_that_is_missing_and_the_whole_application(serving_args, tmp_path):
    application = build(serving_args | {"index": {"root": str(tmp_path)}})
    assert application._bound_deployment.name == "ingress"
    assert list((tmp_path / "indexes").iterdir())
