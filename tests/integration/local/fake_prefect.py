"""Stands in for the Prefect server: `fake_prefect.py PORT MODE FOLDER`."""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        sick = (Path(sys.argv[3]) / "sick").exists()
        self.send_response(503 if sick else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    port, mode = int(sys.argv[1]), sys.argv[2]
    if mode == "broken":
        sys.exit("the cellar is flooded")
    if mode == "mute":
        time.sleep(600)
    ThreadingHTTPServer(("127.0.0.1", port), Health).serve_forever()


main()
