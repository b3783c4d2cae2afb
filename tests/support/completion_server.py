"""A server of OpenAI's completions for tests of --drive: `python driven.py PORT MODE`. Each request makes it hold 256 KiB more.

MODE: well; mute (listens on another port); loading (says 503 for a while); refusing (400 from the second request on); dying (ends at the second);
vague (no usage in its answers); leaving (ends by itself, with 0, at the second); stubborn (ignores SIGTERM); whole (knows no streams); strict
(refuses what it does not know, streams too); caching (knows no streams, and holds more only for a new prompt); uncounted (streams without usage);
failing (says in its second stream that it fails).
"""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, MODE = (int(sys.argv[1]), sys.argv[2]) if __name__ == "__main__" else (0, "")
HELD, ASKED = [], []
BEGAN = time.monotonic()
LATE_S = 0.2


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if MODE == "loading" and time.monotonic() < BEGAN + 0.5:
            self.answer(503, {"error": {"message": "Loading model"}})
        else:
            self.answer(200, {"data": [{"id": "the-model"}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if MODE == "caching" and asked["prompt"] in [before["prompt"] for before in ASKED]:
            self.answer(200, {"choices": [], "usage": {"prompt_tokens": len(asked["prompt"]), "completion_tokens": asked["max_tokens"]}})
            return
        ASKED.append(asked)
        HELD.append(bytearray(os.urandom(1 << 18)))
        if MODE == "dying" and len(ASKED) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if MODE == "leaving" and len(ASKED) == 2:
            os._exit(0)
        if MODE == "refusing" and len(ASKED) > 1:
            self.answer(400, {"error": {"message": "the prompt is too long"}})
            return
        if asked["model"] != "the-model":
            self.answer(404, {"error": "no such model"})
            return
        if MODE == "strict" and "stream" in asked:
            self.answer(400, {"error": {"message": "stream: not known"}})
            return
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": asked["max_tokens"]}
        if asked.get("stream") and MODE not in ("whole", "strict", "caching"):
            self.stream(asked, usage if MODE not in ("vague", "uncounted") and asked["stream_options"]["include_usage"] else None)
            return
        self.answer(200, {"choices": [], **({"usage": usage} if MODE != "vague" else {})})

    def stream(self, asked, usage):
        """A token an event; the last comes later than the first by LATE_S."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        self.wfile.write(b": a comment\n\n")
        for token in range(asked["max_tokens"]):
            self.event({"choices": [{"text": f"{token} "}]})
            time.sleep(LATE_S if token == 0 else 0)
        if MODE == "failing" and len(ASKED) == 2:
            self.event({"error": {"message": "the cache is full"}})
            return
        if usage:
            self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, content):
        self.wfile.write(f"data: {json.dumps(content)}\n\n".encode())

    def answer(self, status, content):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "mute":
        time.sleep(600)
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
