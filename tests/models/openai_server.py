"""A local HTTP server that answers chat completions as its script says, and keeps what it was sent."""

import json
import threading
import time
from contextlib import contextmanager
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
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
