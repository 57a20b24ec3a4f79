"""The client of OpenAI-compatible servers, against a real local one."""

import json
import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

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


def test_a_date_to_wait_for_is_kept():
    until = datetime.now(UTC) + timedelta(seconds=2)  # dates are in whole seconds: at least one remains

    def once(body, number):
        if number > 1:
            return echo(body, number)
        return 503, {"retry-after": format_datetime(until, usegmt=True)}, "", 0.0

    with serving(once) as (url, requests):
        client(url).generate(["p"], 1)
    assert requests[1]["at"] - requests[0]["at"] > 0.5


@pytest.mark.parametrize(
    "value", ["soon", "nan", "-5", "inf", "Thu, 01 Jan 1970 00:00:00 GMT", "1 Jan 1970 00:00:00 +99999999999999"]
)
def test_a_wait_that_means_nothing_delays_nothing(value):
    def once(body, number):
        return (429, {"retry-after": value}, "", 0.0) if number == 1 else echo(body, number)

    with serving(once) as (url, requests):
        assert client(url).generate(["p"], 1) == [Generation("to p", 7, 3, "stop")]
    assert requests[1]["at"] - requests[0]["at"] < 1.0


def test_a_wait_beyond_the_total_time_is_not_begun():
    with serving(lambda body, number: (429, {"retry-after": "3600"}, "", 0.0)) as (url, requests):
        [error] = client(url, total_s=5.0).generate(["p"], 1)
    words = f"no answer from {url} after 1 of 5 tries within 5 s: it answered with status 429 and asks to wait 3,600 s."
    assert str(error) == words
    assert len(requests) == 1


def test_a_wait_without_bound_is_not_written_out():
    with serving(lambda body, number: (429, {"retry-after": "1e300"}, "", 0.0)) as (url, _):
        [error] = client(url).generate(["p"], 1)
    assert str(error).endswith("it answered with status 429 and asks to wait more than 86,400 s.")


def test_a_prompt_that_keeps_failing_is_an_error_of_its_own():
    def bad_apple(body, number):
        return (500, {}, "", 0.0) if prompt_of(body) == "bad" else echo(body, number)

    with serving(bad_apple) as (url, requests):
        good, bad = client(url, attempts=3).generate(["good", "bad"], 1)
    assert good == Generation("to good", 7, 3, "stop")
    assert isinstance(bad, RowError)
    assert "after 3 of 3 tries within 600 s: it answered with status 500" in str(bad)
    assert len(requests) == 4


def test_a_slow_server_is_given_up():
    with serving(lambda body, number: (200, {}, completion("late"), 1.0)) as (url, requests):
        [late] = client(url, attempts=2, timeout_s=0.2).generate(["p"], 1)
    assert "after 2 of 2 tries within 600 s: it took too long" in str(late)
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


@pytest.mark.parametrize(
    "changes", [{"attempts": 0}, {"concurrency": 0}, {"timeout_s": 0.0}, {"timeout_s": 1e10}, {"total_s": -1.0}]
)
def test_numbers_that_ask_nothing_are_refused(changes):
    with pytest.raises(ConfigError, match=r"generation\.server"):
        ServerSettings("http://host/v1", "m", **changes)


@pytest.mark.parametrize("key", ["sk-schlüssel", "sk-two\nlines"])
def test_a_key_that_no_header_holds_is_refused_without_saying_it(monkeypatch, key):
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(ConfigError, match="the key in MY_KEY holds signs") as raised:
        client("http://127.0.0.1:9/v1", key_variable="MY_KEY")
    assert "sk-" not in str(raised.value)


@pytest.mark.parametrize("key", ["sk-very-secret", "EMPTY", "token", "x"])
def test_a_key_that_the_server_repeats_is_in_no_error_and_no_answer_is_changed_for_it(monkeypatch, key):
    monkeypatch.setenv("MY_KEY", key)
    said = [f"{key} is no JSON", completion(f"The box was {key}")]
    with serving(lambda body, number: (200, {}, said[int(prompt_of(body))], 0.0)) as (url, _):
        error, answer = client(url, key_variable="MY_KEY").generate(["0", "1"], 1)
    assert "b'(the key) is no JSON'" in str(error)
    assert answer == Generation(f"The box was {key}", 7, 3, "stop")


@pytest.mark.parametrize("key", ["sk-very-secret", "EMPTY", "delta"])
def test_a_stream_that_repeats_the_key_keeps_it_in_the_text_and_out_of_its_error(monkeypatch, key):
    monkeypatch.setenv("MY_KEY", key)
    text = stream_of(f"an {key} box", end=f"data: {key}\n\n")
    with serving(lambda body, number: (200, {}, text, 0.0)) as (url, _):
        pieces = client(url, key_variable="MY_KEY").stream("p", 5)
        assert next(pieces) == f"an {key} box"
        with pytest.raises(RowError, match=r"no part of a chat completion: b'\(the key\)'\.$"):
            next(pieces)


@pytest.mark.parametrize("key", ["error", "a/b", 'say "sk"'])
def test_a_refusal_is_read_before_the_key_is_taken_out_of_it(monkeypatch, key):
    monkeypatch.setenv("MY_KEY", key)
    refusal = json.dumps({"error": {"message": f"{key} refused"}}).replace("/", r"\/")  # both are the same JSON
    with serving(lambda body, number: (400, {}, refusal, 0.0)) as (url, _):
        [error] = client(url, key_variable="MY_KEY").generate(["p"], 1)
    assert str(error) == "the server refused the prompt (status 400) and said '(the key) refused'."


def test_nobody_at_the_address_stops_the_run_with_advice():
    with pytest.raises(CoragError, match=r"cannot connect\. Start the server or mend generation\.server"):
        client("http://127.0.0.1:9/v1", attempts=2).generate(["p"], 1)


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


class WordTokenizer:
    name, context_window = "words", 99

    def count(self, texts):
        return [len(text.split()) for text in texts]

    def offsets(self, texts):
        raise NotImplementedError

    def count_prompts(self, prompts):
        return [count + 2 for count in self.count(prompts)]


def counts(prompt_tokens, new_tokens):
    return {"usage": {"prompt_tokens": prompt_tokens, "completion_tokens": new_tokens}}


@pytest.mark.parametrize(
    "usage", [{}, {"usage": None}, counts(-1, 1), counts(True, 1), counts(9, False), counts(9.0, 1)]
)
def test_tokens_that_the_server_does_not_count_are_counted_here_or_the_row_fails(usage):
    text = json.dumps({"choices": [{"message": {"content": "one two three"}}], **usage})
    settings = {"model": "m", "first_wait_s": 0.01}
    with serving(lambda body, number: (200, {}, text, 0.0)) as (url, _):
        [counted] = OpenAIGenerator(ServerSettings(url, **settings), WordTokenizer()).generate(["a b c d"], 5)
        [error] = OpenAIGenerator(ServerSettings(url, **settings)).generate(["a b c d"], 5)
    assert counted == Generation("one two three", 6, 3, "stop")
    assert str(error) == "the server's response counts no tokens: use a server that sends `usage`."


def test_a_server_that_counts_more_tokens_than_the_costs_did_is_reported_once(caplog):
    with serving(echo) as (url, _):  # which counts 7
        generator = OpenAIGenerator(ServerSettings(url, "m"), WordTokenizer())
        generator.generate(["one two three four five"], 5)
        assert caplog.text == ""
        generator.generate(["one two", "three"], 5)
    assert caplog.text.count("counts 7 tokens in a prompt of") == 1


def test_an_answer_that_a_filter_withheld_fails_its_row():
    with serving(lambda body, number: (200, {}, completion(None, finish="content_filter"), 0.0)) as (url, _):
        [error] = client(url).generate(["p"], 1)
    assert "content filter withheld" in str(error)


def test_half_a_character_is_not_sent_and_not_taken():
    with serving(lambda body, number: (200, {}, completion("a\ud800b"), 0.0)) as (url, requests):
        error, answer = client(url).generate(["\udfff", "p"], 1)
    assert "lone surrogate" in str(error)
    assert answer.text == "a\N{REPLACEMENT CHARACTER}b"
    assert len(requests) == 1


def test_a_response_without_end_is_cut_off(monkeypatch):
    from corag_ray.models import openai_generator

    monkeypatch.setattr(openai_generator, "MOST_BYTES", 1000)
    with serving(lambda body, number: (200, {}, completion("x" * 2000), 0.0)) as (url, _):
        [error] = client(url).generate(["p"], 1)
    assert "longer than 1,000 bytes" in str(error)


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}


def stream_of(*pieces, end="data: [DONE]\n\n", last=()):
    events = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    lines = [f"data: {json.dumps(event)}\n\n" for event in [*events, *last]]
    return "".join([": a comment\n\n", *lines]) + end


def test_a_stream_comes_in_pieces_and_ends_with_the_whole_answer_as_the_server_counts_it():
    ended = {"choices": [{"delta": {}, "finish_reason": "length"}]}
    text = stream_of(" Par", None, "is ", last=[ended, USAGE])
    with serving(lambda body, number: (200, {}, text, 0.0)) as (url, requests):
        assert list(client(url).stream("p", 5)) == [" Par", "", "is ", "", "", Generation("Paris", 7, 2, "length")]
    assert requests[0]["body"]["stream"] is True
    assert requests[0]["body"]["stream_options"] == {"include_usage": True}


def test_what_a_stream_does_not_count_the_tokenizer_counts():
    class Words:
        def count(self, texts):
            return [len(text.split()) for text in texts]

        def count_prompts(self, prompts):
            return [len(prompt.split()) + 3 for prompt in prompts]

    with serving(lambda body, number: (200, {}, stream_of("so ", "it is"), 0.0)) as (url, _):
        settings = ServerSettings(url, "some-model", timeout_s=5.0)
        *_, answer = OpenAIGenerator(settings, Words()).stream("a b", 5)
    assert answer == Generation("so it is", 5, 3, "stop")


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
    with (
        serving(lambda body, number: (429, {}, "", 0.0)) as (url, _),
        pytest.raises(RowError, match="status 429: ask again later"),
    ):
        list(client(url).stream("p", 5))
    with (
        serving(lambda body, number: (401, {}, "", 0.0)) as (url, requests),
        pytest.raises(ConfigError, match="status 401: set the key"),
    ):
        list(client(url).stream("p", 5))
    assert len(requests) == 1


def test_a_stream_without_line_ends_is_cut_off(monkeypatch):
    from corag_ray.models import openai_generator

    monkeypatch.setattr(openai_generator, "MOST_BYTES", 1000)
    with (
        serving(lambda body, number: (200, {}, "data: " + "x" * 2000, 0.0)) as (url, _),
        pytest.raises(RowError, match="longer than 1,000 bytes"),
    ):
        list(client(url).stream("p", 5))
