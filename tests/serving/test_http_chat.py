"""OpenAI's chat completions and the rerankers' shapes of Cohere and Jina."""

import pytest
from fake_service import FakeService, client_of, events_of

CHAT = {"model": "corag", "messages": [{"role": "user", "content": "How high is the tower?"}]}
CITATION = {"number": 1, "doc_id": "tower.md", "start": 3, "end": 20, "cost": 9}
CITATION |= {"text": "330 metres", "chunk_id": "00000000000000ff"}


@pytest.fixture
def service():
    return FakeService()


@pytest.fixture
def client(service):
    return client_of(service)


def test_a_completion_has_openais_keys_and_its_citations(client):
    body = client.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "mine"}).json()
    assert body.pop("created") > 1_700_000_000
    corag = body.pop("corag")
    assert body == {
        "id": "chatcmpl-mine",
        "object": "chat.completion",
        "model": "corag",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "It is 330 metres high.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 21, "completion_tokens": 6, "total_tokens": 27},
        "citations": [CITATION],
    }
    assert (corag["reranker"], corag["context_tokens"], corag["degraded"]) == ("late_interaction", 8, False)


def test_a_stream_has_the_role_the_pieces_the_reason_and_the_end(client):
    events = [data for _, data in events_of(client.post("/v1/chat/completions", json=CHAT | {"stream": True}))]
    *chunks, done = events
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [delta["content"] for delta in deltas[1:-1]] == ["It is ", "330 metres", " high."]
    assert deltas[-1] == {}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["stop"]
    assert chunks[-1]["citations"] == [CITATION]
    assert not any("usage" in chunk for chunk in chunks)


def test_a_stream_tells_the_usage_where_it_is_asked_for(client):
    asked = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage, _ = [data for _, data in events_of(client.post("/v1/chat/completions", json=asked))]
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 21, "completion_tokens": 6, "total_tokens": 27}
    assert all(chunk["usage"] is None for chunk in chunks)


def test_the_last_user_message_is_the_question_and_the_others_are_said_not_to_be_read(service, client):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "Eiffel."},
        {"role": "user", "content": [{"type": "text", "text": "How "}, {"type": "text", "text": "high?"}]},
    ]
    body = client.post("/v1/chat/completions", json=CHAT | {"messages": messages}).json()
    assert service.asked[0].question.text == "How high?"
    assert body["corag"]["notes"] == ["the question is the last user message: 3 others were not read"]


def test_the_model_is_a_method_alone_or_with_a_reranker(service, client):
    names = [model["id"] for model in client.get("/v1/models").json()["data"]]
    assert {"corag", "naive_rag", "no_context", "corag/combination", "naive_rag/bm25"} <= set(names)
    assert not {"gold_passages", "no_context/bm25"} & set(names)
    for name in names:
        assert client.post("/v1/chat/completions", json=CHAT | {"model": name}).status_code == 200
    asked = dict(zip(names, service.asked, strict=True))
    assert (asked["corag"].method, asked["corag"].reranker) == ("corag", None)
    assert (asked["naive_rag/bm25"].method, asked["naive_rag/bm25"].reranker) == ("naive_rag", "bm25")


def test_a_model_that_is_not_there_is_openais_error(client):
    response = client.post("/v1/chat/completions", json=CHAT | {"model": "gpt-4o"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert "unknown model 'gpt-4o'" in response.json()["error"]["message"]


def test_settings_of_sampling_change_nothing_and_what_is_not_done_is_refused(service, client):
    sampling = {"temperature": 0.7, "top_p": 0.9, "seed": 3, "user": "me", "presence_penalty": 0.5, "stop": None}
    assert client.post("/v1/chat/completions", json=CHAT | sampling).status_code == 200
    for change in (
        *({name: value} for name, value in (("tools", [{}]), ("stop", ["."]), ("logprobs", True), ("n", 2))),
        {"response_format": {"type": "json_object"}},
        {"temperature": 9},
        {"messages": []},
        {"messages": [{"role": "system", "content": "Be brief."}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"max_tokens": 100_000},
        {"no_such": 1},
    ):
        response = client.post("/v1/chat/completions", json=CHAT | change)
        assert response.status_code == 400, change
        assert response.json()["error"]["message"]
    assert len(service.asked) == 1


def test_both_names_of_the_token_limit_are_known(service, client):
    client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 7})
    client.post("/v1/chat/completions", json=CHAT | {"max_completion_tokens": 8})
    assert [asked.max_new_tokens for asked in service.asked] == [7, 8]


def test_where_nothing_is_generated_there_is_no_chat(service):
    client = client_of(service, {"config": {"generation": {"enabled": False}}})
    assert client.post("/v1/chat/completions", json=CHAT).status_code == 404
    assert client.post("/v1/answer", json={"question": "q"}).json()["answer"] is None


RERANK = {"query": "tower", "documents": ["a", {"text": "b"}, "c"]}


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_a_ranking_has_coheres_keys_and_jinas(service, client, path):
    body = client.post(path, json=RERANK | {"return_documents": True, "model": "bm25"}).json()
    assert body["results"] == [
        {"index": 1, "relevance_score": 0.9, "document": {"text": "b"}},
        {"index": 0, "relevance_score": 0.5, "document": {"text": "a"}},
        {"index": 2, "relevance_score": 0.0, "document": {"text": "c"}},
    ]
    assert body["usage"] == {"total_tokens": 12, "prompt_tokens": 12}
    assert (body["model"], body["combination"], body["unscored"]) == ("late_interaction", None, 1)
    assert body["meta"]["billed_units"] == {"search_units": 1}
    [asked] = service.asked
    assert (asked.documents, asked.reranker) == (("a", "b", "c"), "bm25")


def test_a_unit_of_search_is_a_hundred_documents(client):
    units = [
        client.post("/v1/rerank", json={"query": "a", "documents": ["b"] * number}).json()["meta"]["billed_units"]
        for number in (100, 101)
    ]
    assert units == [{"search_units": 1}, {"search_units": 2}]


def test_top_n_cuts_the_ranking_and_documents_are_left_out_unless_asked_for(client):
    assert client.post("/v1/rerank", json=RERANK | {"top_n": 1}).json()["results"] == [
        {"index": 1, "relevance_score": 0.9}
    ]


def test_with_a_budget_the_best_combination_comes_in_its_order(service, client):
    body = client.post("/v1/rerank", json=RERANK | {"budget_tokens": 10, "pair_limit": 5}).json()
    assert body["combination"]["indices"] == [1, 0]
    assert (body["combination"]["cost_tokens"], body["combination"]["method"]) == (9, "corag")
    assert (service.asked[0].budget_tokens, service.asked[0].pair_limit) == (10, 5)


@pytest.mark.parametrize(
    "change", [{"documents": []}, {"documents": [" "]}, {"documents": ["x"] * 201}, {"top_n": 0}, {"model": "nobody"}]
)
def test_documents_have_bounds(service, client, change):
    assert client.post("/v1/rerank", json=RERANK | change).status_code == 400
    assert service.asked == []
