"""The client of OpenAI-compatible servers, against a real local one."""

import logging

import pytest
from models.openai_server import completion, serving

from corag_ray.errors import ConfigError, CoragError, RowError
from corag_ray.models.openai_generator import OpenAIGenerator, ServerSettings
from corag_ray.types import Generation


def client(url, **changes):
    return OpenAIGenerator(ServerSettings(url, "some-model", **{"first_wait_s": 0.01, "timeout_s": 5.0} | changes))


def prompt_of(body):
    return body["messages"][-1]["content"]


def echo(body, number):
    return 200, {}, completion(f" to {prompt_of(body)} "), 0.0


def test_answers_come_in_the_prompts_order_whatever_the_servers(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    prompts = [f"p{n}" for n in range(12)]
    with serving(lambda body, number: (200, {}, completion(prompt_of(body)), 0.05 * (number % 3))) as (url, requests):
        answers = client(url).generate(prompts, 9)
    assert answers == [Generation(prompt, 7, 3, "stop") for prompt in prompts]
    first = requests[0]
    assert first["path"] == "/v1/chat/completions"
    assert {k: v for k, v in first["body"].items() if k != "messages"} == {
        "model": "some-model",
        "temperature": 0,
        "seed": 0,
        "max_tokens": 9,
    }
    assert "Authorization" not in first["headers"]


def test_blanks_around_an_answer_go_and_a_cut_answer_says_length():
    with serving(lambda body, number: (200, {}, completion("  cut ", finish="length"), 0.0)) as (url, _):
        assert client(url).generate(["p"], 1) == [Generation("cut", 7, 3, "length")]


def test_prompts_are_under_way_together_up_to_the_limit():
    with serving(lambda body, number: (200, {}, completion("x"), 0.3)) as (url, requests):
        client(url, concurrency=4).generate([str(n) for n in range(8)], 1)
    arrived = sorted(request["at"] for request in requests)
    assert arrived[3] - arrived[0] < 0.25 <= arrived[4] - arrived[0]


def test_the_key_is_sent_and_never_said(monkeypatch, caplog):
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    caplog.set_level(logging.DEBUG)
    refusal = '{"error": {"message": "bad key sk-very-secret given"}}'
    with (
        serving(lambda body, number: (401, {}, refusal, 0.0)) as (url, requests),
        pytest.raises(ConfigError, match=r"status 401 and said 'bad key \(the key\) given': set the key in .*MY_KEY"),
    ):
        client(url, key_variable="MY_KEY").generate(["p"], 1)
    assert requests[0]["headers"]["Authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in caplog.text


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again(status):
    def twice(body, number):
        return (status, {}, "busy", 0.0) if number < 3 else echo(body, number)

    with serving(twice) as (url, requests):
        assert client(url).generate(["p"], 1) == [Generation("to p", 7, 3, "stop")]
    assert len(requests) == 3


def test_the_wait_that_the_server_asks_for_is_kept():
    def once(body, number):
        return (429, {"retry-after": "0.4"}, "", 0.0) if number == 1 else echo(body, number)

    with serving(once) as (url, requests):
        client(url).generate(["p"], 1)
    assert requests[1]["at"] - requests[0]["at"] >= 0.4


def test_a_prompt_that_keeps_failing_is_an_error_of_its_own():
    def bad_apple(body, number):
        return (500, {}, "", 0.0) if prompt_of(body) == "bad" else echo(body, number)

    with serving(bad_apple) as (url, requests):
        good, bad = client(url, attempts=3).generate(["good", "bad"], 1)
    assert good == Generation("to good", 7, 3, "stop")
    assert isinstance(bad, RowError)
    assert "in 3 tries: it answered with status 500" in str(bad)
    assert len(requests) == 4


def test_a_slow_server_is_given_up():
    with serving(lambda body, number: (200, {}, completion("late"), 1.0)) as (url, requests):
        [late] = client(url, attempts=2, timeout_s=0.2).generate(["p"], 1)
    assert "in 2 tries: it took too long" in str(late)
    assert len(requests) == 2


def test_a_refused_prompt_fails_alone_and_is_not_tried_again():
    said = '{"error": {"message": "too long\\nby far"}}'
    with serving(lambda body, number: (400, {}, said, 0.0)) as (url, requests):
        [error] = client(url).generate(["p"], 1)
    assert str(error) == "the server refused the prompt (status 400) and said 'too long by far'."
    assert len(requests) == 1


def test_an_unknown_model_and_a_redirect_stop_the_run():
    with (
        serving(lambda body, number: (404, {}, "<html>no</html>", 0.0)) as (url, _),
        pytest.raises(ConfigError, match=r"status 404: check .* the model's name, 'some-model'"),
    ):
        client(url).generate(["p"], 1)
    with (
        serving(lambda body, number: (307, {"location": "http://127.0.0.1:9/"}, "", 0.0)) as (url, requests),
        pytest.raises(ConfigError, match="status 307"),
    ):
        client(url).generate(["p"], 1)
    assert len(requests) == 1


def test_nobody_at_the_address_stops_the_run_with_advice():
    with pytest.raises(CoragError, match=r"cannot connect\. Start the server or mend generation\.server"):
        client("http://127.0.0.1:9/v1", attempts=2).generate(["p"], 1)
    with pytest.raises(ConfigError, match="must begin with http"):
        client("localhost:8000")


NO_COMPLETIONS = [
    *("", "<html>", "[]", "null", "[" * 100_000, completion("cut off")[:-9]),
    *('{"choices": []}', '{"choices": [{}]}', '{"choices": [{"message": {"content": 5}}]}'),
    '{"choices": [{"message": {"content": "x"}}], "usage": 7}',
]


@pytest.mark.parametrize("text", NO_COMPLETIONS)
def test_what_is_no_chat_completion_is_an_error_of_its_prompt(text):
    with serving(lambda body, number: (200, {}, text, 0.0)) as (url, _):
        [error] = client(url).generate(["p"], 1)
    assert isinstance(error, RowError)
    assert "no chat completion" in str(error)


def test_a_response_without_end_is_cut_off(monkeypatch):
    from corag_ray.models import openai_generator

    monkeypatch.setattr(openai_generator, "MOST_BYTES", 1000)
    with serving(lambda body, number: (200, {}, completion("x" * 2000), 0.0)) as (url, _):
        [error] = client(url).generate(["p"], 1)
    assert "longer than 1,000 bytes" in str(error)


def stream_of(*pieces, end="data: [DONE]\n\n"):
    import json

    lines = [f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n\n" for piece in pieces]
    return "".join([": a comment\n\n", *lines]) + end


def test_a_stream_comes_in_pieces():
    with serving(lambda body, number: (200, {}, stream_of("Par", None, "is"), 0.0)) as (url, requests):
        assert list(client(url).stream("p", 5)) == ["Par", "is"]
    assert requests[0]["body"]["stream"] is True


def test_a_stream_that_breaks_or_is_refused_says_so():
    with serving(lambda body, number: (200, {}, stream_of("Par", end=""), 0.0)) as (url, _):
        pieces = client(url).stream("p", 5)
        assert next(pieces) == "Par"
        with pytest.raises(RowError, match="ended before it was done"):
            next(pieces)
    with (
        serving(lambda body, number: (200, {}, "data: {oops\n\n", 0.0)) as (url, _),
        pytest.raises(RowError, match="no part of a chat completion"),
    ):
        list(client(url).stream("p", 5))
    with (
        serving(lambda body, number: (400, {}, "", 0.0)) as (url, _),
        pytest.raises(RowError, match="refused the prompt"),
    ):
        list(client(url).stream("p", 5))
