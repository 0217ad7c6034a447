"""A small real server with a worker, for the tests of ServerProcess; run as a script.

python small_server.py PORT [--worker FILE] [--fail CODE] [--failures FILE] [--unready] [--stubborn]
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class Handler(http.server.BaseHTTPRequestHandler):
    """Tells its process id, and answers a chat with it; what is asked to be slow takes for ever, and what is fatal fails."""

    def do_GET(self) -> None:
        body = {"/pid": str(os.getpid()), "/variable": os.environ.get("SMALL_SERVER", "")}.get(self.path, "").encode()
        self.send(503 if arguments.unready else 200, body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["messages"][-1]["content"] == "slow":
            print("a slow answer begins", flush=True)
            time.sleep(600)
        if body["messages"][-1]["content"] == "fatal":
            print("the engine has died", flush=True)
            return self.send(500, b"{}")
        if self.headers["Authorization"] != f"Bearer {os.environ.get('SMALL_SERVER_KEY')}":
            return self.send(401, b"{}")
        message = {"role": "assistant", "content": f"{body['model']} {os.getpid()}"}
        answer = {"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        return self.send(200, json.dumps(answer).encode())

    def send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument(
        "--worker", type=Path, help="start a worker, which ends with the server only if told to; its pid goes here"
    )
    parser.add_argument("--fail", type=int, help="end with this exit code")
    parser.add_argument("--failures", type=Path, help="fail as often as this file says; counts it down")
    parser.add_argument("--unready", action="store_true", help="never be ready")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
    arguments = parser.parse_args()
    print("\x1b[32mthe small server begins\x1b[0m", flush=True)
    if arguments.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arguments.worker:
        worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        arguments.worker.write_text(f"{worker.pid}\n")
    if arguments.failures and (left := int(arguments.failures.read_text())):
        arguments.failures.write_text(str(left - 1))
        arguments.fail = 1
    if arguments.fail is not None:
        print("out of memory: 3 GiB are missing", file=sys.stderr, flush=True)
        sys.exit(arguments.fail)
    http.server.ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler).serve_forever()
