"""A server that is none of OpenAI's: PORT MODE [WORKERS]. Each request for /work keeps 1 MiB and what was posted. In mode loading it answers 503 at
first. Each worker is a process that holds 8 MiB from its start."""

import os
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


server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler, bind_and_activate=False)
server.server_bind()
ready = os.pipe()
for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 0):
    if os.fork() == 0:
        held = bytearray(b"x" * (8 << 20))
        os.write(ready[1], b".")
        server.server_activate()
        server.serve_forever()
    os.read(ready[0], 1)
server.server_activate()
server.serve_forever()
