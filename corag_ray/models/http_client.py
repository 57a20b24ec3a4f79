"""The HTTP client of a model's server: which address it takes, what it reads from the environment, when a request ends.

httpx bounds single reads and writes. A server that sends a header byte by byte, or one early hint after another, keeps
within that bound for ever; so every read and write is given no more than what is left of its request's time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.request import getproxies

import httpx

from corag_ray.errors import ConfigError

LONGEST_TIME_S = 86_400.0
"""A day: no request waits longer, and sockets take no time without bound."""
LONGEST_CONNECT_S = 10.0
_SENT_AT_ONCE_BYTES = 65_536


def check_address(base_url: str, key_variable: str) -> None:
    """Refuse an address that no request can go to, or that holds a secret.

    Raises:
        ConfigError: it does; the message does not show what could be a secret.
    """
    place = "generation.server.base_url"
    if not base_url.startswith(("http://", "https://")):
        raise ConfigError(f"{place} must begin with http:// or https://, not {base_url[:8]!r}.")
    try:
        url = httpx.URL(base_url)
        _check_host(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigError(f"{place} is no address: {error}.") from error
    if not url.host or url.userinfo or url.query or url.fragment:  # what stands there would be stored and printed
        raise ConfigError(f"{place} must be a host and a path alone; the key goes in {key_variable}.")


def open_client(
    base_url: str, headers: Mapping[str, str], connections: int, transport: httpx.BaseTransport | None
) -> httpx.Client:
    """A connection pool with the environment's proxies and certificates; nothing is sent yet.

    Raises:
        ConfigError: the environment names a proxy or certificates that cannot be used.
    """
    for scheme, proxy in getproxies().items():  # as httpx finds them
        if scheme in ("http", "https", "all"):
            _check_proxy(proxy, _spelled(f"{scheme}_proxy"))
    try:
        return httpx.Client(
            base_url=base_url,
            headers=dict(headers),
            limits=httpx.Limits(max_connections=connections),
            follow_redirects=False,  # the key must not be sent elsewhere
            transport=transport,
        )
    except (ValueError, httpx.InvalidURL) as error:
        raise ConfigError(f"{_spelled('no_proxy')} holds what is no host: mend or unset it.") from error
    except OSError as error:
        names = _spelled("ssl_cert_file", "ssl_cert_dir", "sslkeylogfile")
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{names}: what is named there cannot be read ({reason}): mend or unset it.") from error


def ending_by(deadline: float, timeout_s: float) -> dict[str, Any]:
    """What makes a request of httpx (its `extensions`) end by `deadline`, a moment of `time.monotonic`.

    Each of its reads and writes takes `timeout_s` at most. To connect may take up to 10 s beyond the deadline: a server
    that is not there must not look like a slow one.
    """
    part = _Part(timeout_s, deadline)
    times = {"connect": min(LONGEST_CONNECT_S, timeout_s), "pool": timeout_s, "read": part, "write": part}
    return {"timeout": times, "trace": _heed_deadlines}


class _Part(float):
    """Seconds that one read or write may take, of a request that must end at a deadline."""

    deadline: float

    def __new__(cls, seconds: float, deadline: float) -> _Part:
        part = super().__new__(cls, seconds)
        part.deadline = deadline
        return part


def _heed_deadlines(event: str, info: Mapping[str, Any]) -> None:
    """Called by httpcore at each step: a connection that it opened heeds the deadline of every request that uses it."""
    if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
        stream = info["return_value"]
        stream.read, stream.write = _timely_read(stream.read), _timely_write(stream.write)


def _timely_read(read: Callable[[int, float | None], bytes]) -> Callable[..., bytes]:
    def timely(max_bytes: int, timeout: float | None = None) -> bytes:
        return read(max_bytes, _left(timeout, httpx.ReadTimeout))

    return timely


def _timely_write(write: Callable[[bytes, float | None], None]) -> Callable[..., None]:
    def timely(buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _SENT_AT_ONCE_BYTES):  # one call would start its time anew with each send
            write(buffer[start : start + _SENT_AT_ONCE_BYTES], _left(timeout, httpx.WriteTimeout))

    return timely


def _left(part: float | None, too_late: type[httpx.TimeoutException]) -> float | None:
    if not isinstance(part, _Part):
        return part
    left = part.deadline - time.monotonic()
    if left <= 0:
        raise too_late("the request's total time is over")
    return min(float(part), left)


def _check_host(url: httpx.URL) -> None:
    """Raises ValueError for what a socket would not take: a port beyond 65,535, a part of a name beyond 63 letters."""
    url.raw_host.decode("ascii").encode("idna")
    if url.port is not None and not 0 < url.port < 65_536:
        raise ValueError(f"port {url.port} is not from 1 to 65535")


def _check_proxy(proxy: str, variable: str) -> None:
    """Raises ConfigError, without the proxy's address: it may hold a password."""
    try:
        url = httpx.URL(proxy if "://" in proxy else f"http://{proxy}")
        _check_host(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigError(f"{variable} holds what is no address of a proxy: mend or unset it.") from error
    if url.scheme not in ("http", "https", "socks5", "socks5h") or not url.host:
        raise ConfigError(f"{variable} must begin with http://, https:// or socks5:// and name a host, or be unset.")
    if url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise ConfigError(f"the SOCKS proxy in {variable} needs a package: pip install socksio, or unset {variable}.")


def _spelled(*variables: str) -> str:
    """Those of some variables that are set, as the environment spells them."""
    found = sorted(name for name in os.environ if name.lower() in variables)
    return ", ".join(found) or variables[0].upper()
