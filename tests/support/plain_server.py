"""A server that is none of OpenAI's: PORT MODE. Each request for /work keeps 1 MiB and what was posted. In mode loading it answers 503 at first."""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, MODE = int(sys.argv[1]), sys.argv[2]
LOADS_S = 0.6
BEGIN_S = time.monotonic()
kept = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        loading = MODE == "loading" and time.monotonic() - BEGIN_S < LOADS_S
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/work" and not loading:
            kept.append((bytearray(b"x" * (1 << 20)), body))
        code = 503 if loading else 404 if self.path == "/gone" else 200
        self.send_response(code)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_POST = do_GET

    def log_message(self, *words):
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
