"""The routes of our own: what a body becomes, what comes back, and events in their order."""

import json
import time
from pathlib import Path

import jsonschema
import pytest
from fake_service import FakeService, client_of, events_of

from corag_ray.errors import (
    ConfigError,
    DataError,
    DeadlineError,
    OverloadedError,
    ProtocolError,
    RowError,
    UnavailableError,
)

QUESTION = {"question": "How high is the tower?"}
SCHEMA = Path(__file__).parents[2] / "docs" / "explain.schema.json"
SOURCE = {"doc_id": "tower.md", "start": 3, "end": 20, "cost": 9, "text": "330 metres", "chunk_id": "00000000000000ff"}


@pytest.fixture
def service():
    return FakeService()


@pytest.fixture
def client(service):
    return client_of(service)


def test_an_answer_tells_what_it_rests_on_and_what_it_took(client):
    response = client.post("/v1/answer", json=QUESTION, headers={"x-request-id": "mine-1"})
    assert response.status_code == 200
    assert response.headers["x-request-id"] == "mine-1"
    body = response.json()
    assert body.pop("latency_ms").keys() == {"search", "generate"}
    assert body == {
        "id": "mine-1",
        "question": "How high is the tower?",
        "answer": "It is 330 metres high.",
        "finish_reason": "stop",
        "sources": [SOURCE],
        "method": "corag",
        "reranker": "late_interaction",
        "score": 0.75,
        "budget_tokens": 512,
        "effective_budget_tokens": 500,
        "context_tokens": 8,
        "prompt_tokens": 21,
        "new_tokens": 6,
        "pairs": 591,
        "pairs_computed": 591,
        "pairs_unscored": 0,
        "stopped_by": "finished",
        "degraded": False,
        "degraded_because": [],
        "notes": [],
        "index_version": "1-abc",
        "explanation": None,
    }


def test_what_a_request_says_reaches_the_search_and_the_rest_is_the_configurations(service, client):
    body = QUESTION | {
        "budget_tokens": 100,
        "method": "naive_rag",
        "strategy": {"kind": "beam", "changes": {"width": 2}},
        "reranker": "bm25",
        "num_candidates": 20,
        "pair_limit": 60,
        "deadline_ms": 2_000,
        "max_new_tokens": 9,
        "language": "es",
        "explain": True,
    }
    client.post("/v1/answer", json=body)
    client.post("/v1/answer", json=QUESTION)
    said, left_open = service.asked
    assert said.question.language == "es"
    assert (said.budget_tokens, said.method, said.reranker, said.num_candidates) == (100, "naive_rag", "bm25", 20)
    assert (said.pair_limit, said.max_new_tokens, said.strategy.params.width, said.explain) == (60, 9, 2, True)
    assert 0 < said.deadline_s - time.time() <= 2
    assert (left_open.budget_tokens, left_open.max_new_tokens, left_open.method) == (512, 48, None)
    assert (left_open.reranker, left_open.strategy, left_open.pair_limit, left_open.explain) == (
        None,
        None,
        None,
        False,
    )
    assert 50 < left_open.deadline_s - time.time() <= 60


def test_without_generation_the_selection_is_the_answer(client):
    body = client.post("/v1/answer", json=QUESTION | {"generate": False}).json()
    assert (body["answer"], body["finish_reason"], body["new_tokens"]) == (None, None, 0)
    assert body["sources"] == [SOURCE]


def test_a_degraded_answer_is_marked(service, client):
    service.degraded = ("reranker 'bge' did not answer in time.",)
    body = client.post("/v1/answer", json=QUESTION).json()
    assert (body["degraded"], body["stopped_by"]) == (True, "deadline")
    assert body["degraded_because"] == ["reranker 'bge' did not answer in time."]


def test_events_are_stages_then_tokens_then_the_whole_answer(client):
    whole = client.post("/v1/answer", json=QUESTION).json()
    response = client.post("/v1/answer", json=QUESTION | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    stage, *tokens, (name, last) = events_of(response)
    assert stage == ("stage", {"stage": "retrieved", "ms": 2.0, "candidates": 60})
    assert tokens == [("token", {"text": text}) for text in ("It is ", "330 metres", " high.")]
    assert name == "done"
    for body in (whole, last):
        del body["latency_ms"], body["id"]
    assert last == whole


def test_an_error_among_the_events_is_the_last_of_them_and_the_generation_is_closed(service, client):
    service.pieces_error = UnavailableError("generator lost the replica that was answering.")
    events = events_of(client.post("/v1/answer", json=QUESTION | {"stream": True}))
    assert events[-2] == ("token", {"text": "It is "})
    name, body = events[-1]
    assert (name, body["error"]["type"]) == ("error", "unavailable_error")
    assert service.closed == 1


KINDS = [
    (ConfigError("no such thing."), 400, "invalid_request_error"),
    (RowError("the question is too long."), 422, "invalid_request_error"),
    (OverloadedError("full."), 503, "overloaded_error"),
    (UnavailableError("out of reach."), 503, "unavailable_error"),
    (DeadlineError("time was up."), 504, "timeout_error"),
    (DataError("a secret place: /srv/index"), 500, "server_error"),
    (ProtocolError("3 for 4."), 500, "server_error"),
    (ValueError("a defect"), 500, "server_error"),
]


@pytest.mark.parametrize("path", ["/v1/answer", "/v1/rerank"])
@pytest.mark.parametrize(("error", "status", "kind"), KINDS)
def test_each_kind_of_error_has_one_status_and_one_shape(service, client, path, error, status, kind):
    service.error = error
    body = QUESTION if path == "/v1/answer" else {"query": "q", "documents": ["a", "b", "c"]}
    response = client.post(path, json=body, headers={"x-request-id": "mine-2"})
    assert response.status_code == status
    said = response.json()
    assert said["request_id"] == response.headers["x-request-id"] == "mine-2"
    assert said["error"].keys() == {"message", "type", "param", "code"}
    assert said["error"]["type"] == kind
    if status < 500 or status in (503, 504):
        assert said["error"]["message"] == str(error)
    else:
        assert str(error) not in response.text  # what went wrong inside is nobody's business
        assert "Traceback" not in response.text
    assert ("retry-after" in response.headers) == (status == 503)


def test_an_error_before_the_first_event_has_its_status(service, client):
    service.error = ConfigError("no such thing.")
    service.stages = lambda asked: stages_that_fail(service, asked)
    response = client.post("/v1/answer", json=QUESTION | {"stream": True})
    assert response.status_code == 400


async def stages_that_fail(service, asked):
    yield service.selected(asked)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 3}, "unknown key 'budget'; did you mean 'budget_tokens'?"),
        ({"question": " "}, "'question': it is empty: write what you want to know."),
        ({"question": 3}, "'question': input should be a valid string, found '3'."),
        ({"question": "x" * 8_001}, "'question' has 8,001 characters, and at most 8,000 are let in."),
        ({"budget_tokens": 0}, "'budget_tokens': input should be greater than or equal to 1, found '0'."),
        ({"budget_tokens": True}, "'budget_tokens': input should be a valid integer, found 'True'."),
        ({"budget_tokens": 9_999}, "'budget_tokens' must be at most 8,192 here, not 9,999."),
        ({"pair_limit": 10**30}, "'pair_limit':"),
        ({"deadline_ms": 10**9}, "'deadline_ms' must be at most 300,000 here, not 1,000,000,000."),
        ({"language": "fr"}, "unknown language of prompts 'fr'"),
        ({"method": "corga"}, "unknown method 'corga'; did you mean 'corag'?"),
        ({"reranker": "bm52"}, "unknown reranker 'bm52'; did you mean 'bm25'?"),
        ({"strategy": {"kind": "beem"}}, "'strategy'"),
        ({"strategy": {"kind": "beam", "changes": {"widht": 2}}}, "unknown search parameter 'widht'; did you mean"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence_and_nothing_is_computed(service, client, change, message):
    response = client.post("/v1/answer", json=QUESTION | change)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert service.asked == []


def test_half_of_a_character_is_refused_and_can_be_told(client):
    json_type = {"content-type": "application/json"}
    response = client.post("/v1/answer", content=b'{"question": "a \\ud800 b"}', headers=json_type)
    assert response.status_code == 400
    assert "lone surrogate" in response.json()["error"]["message"]
    named = client.post("/v1/answer", content=b'{"question": "a", "\\ud800": 1}', headers=json_type)
    assert named.status_code == 400


def test_a_body_that_does_not_say_it_is_json_is_told_how_to(client):
    response = client.post("/v1/answer", content=b'{"question": "as curl -d sends it"}')
    assert response.status_code == 400
    assert "Content-Type: application/json" in response.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"question": ' + b"[" * 100_000])
def test_what_is_no_json_object_is_refused(client, content):
    response = client.post("/v1/answer", content=content, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
def test_what_asks_to_be_explained_can_be_asked_for_afterwards_and_nothing_else(client, stream):
    body = QUESTION | {"explain": True, "stream": stream}
    response = client.post("/v1/answer", json=body, headers={"x-request-id": "mine-3"})
    answer = events_of(response)[-1][1] if stream else response.json()
    assert client.get("/v1/explain/mine-3").json() == answer
    explanation = answer["explanation"]
    jsonschema.validate(explanation, json.loads(SCHEMA.read_text("utf-8")))
    told = [explanation[key] for key in ("question", "method", "settings", "searched", "stopped", "index_version")]
    assert told == ["How high is the tower?", "corag", {"strategy": "policy_tree"}, "list", "all_scored", "1-abc"]
    asked = [[node[key] for key in ("combination", "asked", "raw", "calibrated")] for node in explanation["nodes"]]
    assert asked == [[[0], 1, 1.099, 0.75], [[1], 2, None, None]]
    assert [candidate["prior"] for candidate in explanation["candidates"]] == [0.5, 0.25]
    assert explanation["choice"]["combination"] == [0]
    assert explanation["milliseconds"] == answer["latency_ms"]
    assert answer["latency_ms"].keys() == {"search", "generate"}
    client.post("/v1/answer", json=QUESTION, headers={"x-request-id": "mine-4"})
    missing = client.get("/v1/explain/mine-4")
    assert missing.status_code == 404
    assert "no explanation of 'mine-4'" in missing.json()["error"]["message"]


def test_search_gives_chunks_with_their_scores(service, client):
    body = client.post("/v1/search", json={"query": "tower", "top_k": 3}).json()
    assert body["hits"] == [SOURCE | {"score": 0.5}]
    assert body["index_version"] == "1-abc"
    client.post("/v1/search", json={"query": "tower"})
    assert service.asked == [("tower", 3), ("tower", 60)]


def test_health_is_of_this_process_and_ready_of_all_parts(service, client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"ready": True, "parts": {"driver": True, "index": True}}
    service.parts["index"] = False
    response = client.get("/ready")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["ready"] is False


def test_an_unknown_path_and_method_have_the_same_shape(client):
    for response, status in ((client.get("/v1/nothing"), 404), (client.get("/v1/answer"), 405)):
        assert response.status_code == status
        assert response.json()["error"].keys() == {"message", "type", "param", "code"}


def test_every_route_with_a_body_has_an_example_that_it_takes(client):
    document = client.get("/openapi.json").json()
    tried = 0
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if "requestBody" not in operation:
                continue
            name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
            [example] = document["components"]["schemas"][name]["examples"]
            assert client.post(path, json=example).status_code == 200, path
            tried += 1
    assert tried == 4
