"""What a server cannot do to its client, and what the environment must not: waits without end, trace-backs, secrets."""

import json
import time
from contextlib import contextmanager

import httpx
import pytest
from models.openai_server import dripping, serving, sipping

from corag_ray.errors import ConfigError, RowError
from corag_ray.models.http_client import _left, _Part
from corag_ray.models.openai_generator import OpenAIGenerator, ServerSettings

ANSWER = b"HTTP/1.1 200 OK\r\n"
CHUNKED = ANSWER + b"Transfer-Encoding: chunked\r\n\r\n"
DRIPS = {
    "body": (ANSWER + b"Content-Length: 500\r\n\r\n", b" "),
    "header": (ANSWER + b"X: ", b"a"),
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"),
    "chunk extension": (CHUNKED + b"1;x=", b"a"),
    "trailer": (CHUNKED + b"0\r\nX: ", b"a"),
}


def client(url, **changes):
    return OpenAIGenerator(ServerSettings(url, "m", **{"total_s": 0.5, "attempts": 1} | changes))


@contextmanager
def half_a_second():
    """What is inside must end about half a second after it began, not after the twenty of the server."""
    started = time.monotonic()
    yield
    assert 0.4 < time.monotonic() - started < 8.0  # a busy machine is slow


@pytest.mark.parametrize("drip", DRIPS)
def test_a_server_that_sends_drop_by_drop_is_given_up_at_the_total_time(drip):
    with dripping(*DRIPS[drip]) as url, half_a_second():
        [error] = client(url).generate(["p"], 1)
    assert str(error) == f"no answer from {url} after 1 of 1 tries within 0.5 s: it took too long."


@pytest.mark.parametrize("drip", DRIPS)
def test_a_stream_of_drops_is_given_up_too(drip):
    with dripping(*DRIPS[drip]) as url, half_a_second(), pytest.raises(RowError, match="broke: it took too long"):
        list(client(url).stream("p", 1))


def test_a_connection_that_is_used_again_heeds_the_time_of_each_request():
    with dripping(*DRIPS["header"], answered=2) as url:
        asked = client(url, concurrency=1)
        for _ in range(2):
            [answer] = asked.generate(["p"], 1)
            assert answer.text == "good"
            time.sleep(0.4)  # the first request's time is over before the third begins
        with half_a_second():
            [error] = asked.generate(["p"], 1)
    assert "it took too long" in str(error)


def test_a_server_that_reads_sip_by_sip_is_given_up_at_the_total_time():
    with sipping() as url, half_a_second():
        [error] = client(url).generate(["p" * 20_000_000], 1)
    assert "it took too long" in str(error)


def test_a_read_takes_its_own_time_at_most_and_never_more_than_is_left():
    now = time.monotonic()
    assert _left(_Part(1.0, now + 100.0), httpx.ReadTimeout) == 1.0
    assert 49.0 < _left(_Part(100.0, now + 50.0), httpx.ReadTimeout) <= 50.0
    assert _left(3.0, httpx.ReadTimeout) == 3.0  # of a request that has no deadline
    with pytest.raises(httpx.WriteTimeout):
        _left(_Part(1.0, now), httpx.WriteTimeout)


ADDRESSES = [
    *("localhost:8000", "ftp://host", "http://", "http://me:sk-secret@host/v1", "http://host/v1?key=sk-secret"),
    *("http://host:port/v1", "http://host:99999/v1", "http://[::1", "http://a..b/v1", f"http://{'a' * 70}.de/v1"),
]


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_that_cannot_be_asked_or_holds_a_secret_is_refused_without_saying_it(url):
    with pytest.raises(ConfigError, match=r"^generation\.server\.base_url [^\n]*\.$") as raised:
        ServerSettings(url, "m")
    assert "sk-secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://[::1]:8000/v1", "https://bücher.de", "http://host.", f"http://{'a' * 63}.de"])
def test_any_other_address_is_taken(url):
    assert ServerSettings(url, "m").base_url == url


PROXIES = [
    ("foo://x", r"must begin with http://, https:// or socks5://"),
    ("http://", r"must begin with http://.* and name a host"),
    ("http://[::1", "holds what is no address of a proxy"),
    ("http://me:sk-secret/x@host", "holds what is no address of a proxy"),
    ("a..b:80", "holds what is no address of a proxy"),
]


@pytest.mark.parametrize("variable", ["ALL_PROXY", "https_proxy"])
@pytest.mark.parametrize(("proxy", "reason"), PROXIES)
def test_a_proxy_of_the_environment_that_is_none_is_one_sentence_without_its_address(
    monkeypatch, variable, proxy, reason
):
    monkeypatch.delenv(variable.swapcase(), raising=False)
    monkeypatch.setenv(variable, proxy)
    with pytest.raises(ConfigError, match=f"^{variable} [^\n]*{reason}") as raised:
        client("http://127.0.0.1:9/v1")
    assert "sk-secret" not in str(raised.value)


def test_a_socks_proxy_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    monkeypatch.setattr("corag_ray.models.http_client.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"in ALL_PROXY needs a package: pip install socksio, or unset ALL_PROXY\.$"):
        client("http://127.0.0.1:9/v1")


def test_a_proxy_without_a_scheme_is_one_of_http_and_is_asked(monkeypatch):
    said = json.dumps({"error": {"message": "I am the proxy"}})
    with serving(lambda body, number: (400, {}, said, 0.0)) as (url, _):
        monkeypatch.setenv("http_proxy", url.removeprefix("http://").removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "other")
        [error] = client("http://nowhere.invalid/v1").generate(["p"], 1)
    assert "I am the proxy" in str(error)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_of_the_environment_that_cannot_be_read_are_one_sentence(monkeypatch, tmp_path, content):
    if content:
        (tmp_path / "c.pem").write_text(content)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "c.pem"))
    with pytest.raises(
        ConfigError, match=r"^SSL_CERT_FILE: what is named there cannot be read \(.+\): mend or unset it"
    ):
        client("http://127.0.0.1:9/v1")
