"""A Kafka Connect worker of version 4 as far as the console asks it: connectors that move from state to state."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

TRACE = (
    "org.apache.kafka.connect.errors.ConnectException: <script>alert(1)</script>\n"
    "\tat io.debezium.Task.start(Task.java:1)\n"
    "Caused by: java.net.ConnectException: Connection refused\n\tat java.net.Socket.connect(Socket.java:1)\n"
)


class StubConnect:
    """Connectors by name, each with a state; a task follows its connector after `delay` seconds.

    `settings` go into each configuration.
    """

    def __init__(self, *, delay: float = 0.0) -> None:
        self.delay = delay
        self.states: dict[str, str] = {}
        self.failed: set[str] = set()
        self.moved: dict[str, float] = {}
        self.hopeless: set[str] = set()
        self.settings: dict[str, str] = {}

    def add(self, name: str, *, failed: bool = False) -> None:
        self.states[name], self.moved[name] = "RUNNING", 0.0
        if failed:
            self.failed.add(name)

    def move(self, name: str, state: str) -> None:
        self.states[name], self.moved[name] = state, time.monotonic()
        if name not in self.hopeless:
            self.failed.discard(name)

    def status(self, name: str) -> dict:
        state, arrived = self.states[name], time.monotonic() - self.moved[name] >= self.delay
        task = {"id": 0, "state": state if arrived else "RUNNING", "worker_id": "127.0.0.1:8083"}
        if name in self.failed and state == "RUNNING":
            task |= {"state": "FAILED", "trace": TRACE}
        tasks = [] if state == "STOPPED" and arrived else [task]
        return {"name": name, "connector": {"state": state, "worker_id": "127.0.0.1:8083"}, "tasks": tasks,
                "type": "source"}  # fmt: skip

    def config(self, name: str) -> dict:
        return {"name": name, "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "topic.prefix": name, "table.include.list": "public.orders,public.customers",
                "database.password": "hunter2", "slot.name": f"slot_{name}",
                **self.settings}  # fmt: skip

    def answer(self, method: str, path: str):
        """Status and body; None for the body of an answer without content."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        if parts == ["connectors"]:
            return 200, {
                name: {"info": {"config": self.config(name)}, "status": self.status(name)} for name in self.states
            }
        name, what = parts[1], parts[2] if len(parts) > 2 else ""
        if name not in self.states:
            return 404, {"error_code": 404, "message": f"Connector {name} not found"}
        if method == "GET":
            offset = {"partition": {"server": name}, "offset": {"lsn_proc": 24023128, "lsn": 24023128, "ts_usec": 1}}
            return 200, {
                "status": self.status(name),
                "config": self.config(name),
                "offsets": {"offsets": [offset]},
            }.get(what, {})
        self.move(name, {"pause": "PAUSED", "stop": "STOPPED"}.get(what, "RUNNING"))
        return 202, None


@contextmanager
def connect_worker(stub: StubConnect):
    """Serve a stub, and give its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            self.rfile.read(length)
            status, body = stub.answer(self.command, self.path)
            content = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = respond

        def log_message(self, *args) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
