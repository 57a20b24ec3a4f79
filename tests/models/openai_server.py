"""A local HTTP server that answers chat completions as its script says, and keeps what it was sent."""

import json
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text, finish="stop", prompt_tokens=7, new_tokens=3):
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": new_tokens}
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": finish}], "usage": usage})


@contextmanager
def serving(reply):
    """`reply(body, number)` gives (status, headers, text, seconds to wait); yields the address and the requests."""
    requests, lock = [], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
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

        def log_message(self, *args):
            pass

    with _running(Handler) as url:
        yield url, requests


@contextmanager
def dripping():
    """A server whose every answer comes byte by byte, one each 50 ms for 5 seconds; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "100")
            self.end_headers()
            with suppress(OSError):  # the client leaves
                for _ in range(100):
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.05)

        def log_message(self, *args):
            pass

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
