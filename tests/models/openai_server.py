"""A local HTTP server that answers chat completions as its script says, and keeps what it was sent."""

import json
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text, finish="stop", prompt_tokens=7, new_tokens=3):
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": new_tokens}
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": finish}], "usage": usage})


class _QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def serving(reply):
    """`reply(body, number)` gives (status, headers, text, seconds to wait); yields the address and the requests."""
    requests, lock = [], threading.Lock()

    class Handler(_QuietHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                requests.append(
                    {"path": self.path, "headers": dict(self.headers), "body": body, "at": time.monotonic()}
                )
                number = len(requests)
            status, headers, text, wait = reply(body, number)
            time.sleep(wait)
            self.send_response(status)
            content = text.encode()
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            with suppress(OSError):  # the client may have left
                self.end_headers()
                self.wfile.write(content)

    with _running(Handler) as url:
        yield url, requests


@contextmanager
def dripping(head, drop, answered=0):
    """A server that sends `head` and then a drop each 50 ms for 20 seconds; yields the address.

    On each connection it first answers as many requests as `answered` says.
    """

    class Handler(_QuietHandler):
        protocol_version = "HTTP/1.1"  # which keeps connections open
        on_this_connection = 0

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.on_this_connection += 1
            if self.on_this_connection <= answered:
                content = completion("good").encode()
                self.send_response(200)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                return
            self.close_connection = True
            with suppress(OSError):  # the client leaves
                self.wfile.write(head)
                for _ in range(400):
                    self.wfile.write(drop)
                    time.sleep(0.05)

    with _running(Handler) as url:
        yield url


@contextmanager
def sipping():
    """A server that reads a request sip by sip, 10 kB each 50 ms for 20 seconds; yields the address."""

    class Handler(_QuietHandler):
        def do_POST(self):
            for _ in range(400):
                self.rfile.read(10_000)
                time.sleep(0.05)

    with _running(Handler) as url:
        yield url


@contextmanager
def _running(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
