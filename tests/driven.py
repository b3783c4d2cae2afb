"""A server of OpenAI's completions for tests of --drive: `python driven.py PORT MODE`. Each request makes it hold 256 KiB more.

MODE: well; mute (listens on another port); loading (says 503 for a while); refusing (400 from the second request on); dying (ends at the second);
vague (no usage in its answers); leaving (ends by itself, with 0, at the second); stubborn (ignores SIGTERM).
"""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, MODE = int(sys.argv[1]), sys.argv[2]
HELD, ASKED = [], []
BEGAN = time.monotonic()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if MODE == "loading" and time.monotonic() < BEGAN + 0.5:
            self.answer(503, {"error": {"message": "Loading model"}})
        else:
            self.answer(200, {"data": [{"id": "the-model"}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
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
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": asked["max_tokens"]}
        self.answer(200, {"choices": [], **({"usage": usage} if MODE != "vague" else {})})

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
