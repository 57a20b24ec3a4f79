"""The gate: keys, sizes, request ids and how many are let in, before anything is computed."""

import asyncio

import pytest
from fake_service import FakeService, client_of

from corag_ray.errors import ConfigError
from corag_ray.serving.http.gate import Gate, read_keys
from corag_ray.serving.settings import Http

QUESTION = {"question": "How high is the tower?"}
KEYS = ["first-key", "second-key"]


@pytest.fixture
def service():
    return FakeService()


NO_KEY = [
    {},
    {"authorization": "Bearer wrong"},
    {"authorization": "Basic first-key"},
    {"authorization": "Bearer "},
    {"authorization": "first-key"},
    {"x-api-key": "first-ke"},
    {"x-api-key": ""},
]


@pytest.mark.parametrize("headers", NO_KEY)
@pytest.mark.parametrize("path", ["/v1/answer", "/v1/chat/completions", "/v1/rerank", "/v2/rerank", "/v1/search"])
def test_without_a_valid_key_nothing_is_computed(service, headers, path):
    response = client_of(service, keys=KEYS).post(path, json=QUESTION, headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert service.asked == []


@pytest.mark.parametrize("headers", [{"authorization": "Bearer second-key"}, {"x-api-key": "first-key"}])
def test_either_key_lets_in_by_either_header(service, headers):
    assert client_of(service, keys=KEYS).post("/v1/answer", json=QUESTION, headers=headers).status_code == 200


def test_models_need_a_key_and_health_does_not(service):
    client = client_of(service, keys=KEYS)
    assert client.get("/v1/models").status_code == 401
    assert client.get("/health").status_code == client.get("/ready").status_code == 200


def test_keys_come_from_the_environment_and_a_file(monkeypatch, tmp_path):
    monkeypatch.delenv("MY_KEYS", raising=False)
    assert read_keys(Http(keys_variable="MY_KEYS")) == []
    monkeypatch.setenv("MY_KEYS", "a, b,")
    (tmp_path / "keys").write_text("c\n\n d \n")
    assert read_keys(Http(keys_variable="MY_KEYS", keys_file=tmp_path / "keys")) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("content", [None, "\n \n"])
def test_a_key_file_that_holds_none_is_refused_rather_than_letting_everyone_in(tmp_path, content):
    path = tmp_path / "keys"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"args\.http\.keys_file"):
        read_keys(Http(keys_variable="NO_SUCH_VARIABLE", keys_file=path))


def test_a_body_beyond_the_limit_is_refused_whether_it_says_its_length_or_not(service):
    client = client_of(service, {"http": {"max_body_bytes": 100}})
    assert client.post("/v1/answer", json={"question": "x" * 50}).status_code == 200
    long = client.post("/v1/answer", json={"question": "x" * 100})
    chunked = client.post("/v1/answer", content=iter([b"x" * 60, b"x" * 60]))
    lying = client.post("/v1/answer", json=QUESTION, headers={"content-length": "9" * 5000})
    assert [response.status_code for response in (long, chunked, lying)] == [413] * 3
    assert long.json()["error"]["message"] == "the body is larger than 100 bytes."
    assert len(service.asked) == 1


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "<script>"])
def test_an_id_that_is_not_a_plain_one_is_replaced(service, given):
    response = client_of(service).post("/v1/answer", json=QUESTION, headers={"x-request-id": given})
    assert len(response.headers["x-request-id"]) == 32
    assert response.headers["x-request-id"] == response.json()["id"]


def test_where_the_server_tells_the_id_the_gate_does_not_tell_it_again():
    told = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        told.append(message)

    asyncio.run(Gate(app, Http(), [], tell_id=False)(request(), no_body, send))
    assert told[0]["headers"] == []


def test_two_requests_have_two_ids(service):
    client = client_of(service)
    ids = {client.post("/v1/answer", json=QUESTION).json()["id"] for _ in range(2)}
    assert len(ids) == 2


def request(path="/v1/answer"):
    return {"type": "http", "path": path, "headers": []}


async def no_body():
    return {"type": "http.request", "body": b"", "more_body": False}


def test_more_requests_than_may_be_under_way_are_told_to_come_again():
    begun, free, told = asyncio.Event(), asyncio.Event(), []

    async def app(scope, receive, send):
        begun.set()
        await free.wait()

    async def send(message):
        told.append(message)

    async def run():
        gate = Gate(app, Http(max_in_flight=1, retry_after_s=7), [])
        first = asyncio.create_task(gate(request(), no_body, send))
        await begun.wait()
        await gate(request(), no_body, send)
        refused = list(told)
        health = asyncio.create_task(gate(request("/health"), no_body, send))  # not counted, so let in
        await asyncio.sleep(0)
        free.set()
        await asyncio.gather(first, health)
        told.clear()
        await gate(request(), no_body, send)
        return refused

    start, _ = asyncio.run(run())
    assert start["status"] == 429
    assert (b"retry-after", b"7") in start["headers"]
    assert told == []  # let in again


def test_a_client_that_leaves_frees_its_place():
    async def app(scope, receive, send):
        await asyncio.sleep(60)

    async def run():
        gate = Gate(app, Http(max_in_flight=1), [])
        task = asyncio.create_task(gate(request(), no_body, None))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return gate._in_flight

    assert asyncio.run(run()) == 0


def test_the_route_hears_that_its_client_has_left():
    messages = [{"type": "http.request", "body": b"{}", "more_body": False}, {"type": "http.disconnect"}]
    heard = []

    async def receive():
        return messages.pop(0)

    async def app(scope, receive, send):
        heard.extend([await receive(), await receive()])

    asyncio.run(Gate(app, Http(), [])(request(), receive, None))
    assert [message["type"] for message in heard] == ["http.request", "http.disconnect"]
    assert heard[0]["body"] == b"{}"
