"""Services that answer by HTTP what tests say, in place of a cloud's; and a connection to a cloud of such."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from openstack.connection import Connection

Answer = tuple[int, Any]
"""A status, and what is said: as JSON, or as the page that a text is."""
GATEWAY: Answer = (
    502,
    "<html><head><title>502 Bad Gateway</title></head>\n<body><h1>502 Bad Gateway</h1></body></html>",
)
BUSY: Answer = (429, "<html>429 Too Many Requests</html>")
GONE: Answer = (404, {"itemNotFound": {"message": "gone", "code": 404}})
_VERSIONS = {"compute": "2.1", "block_storage": "3", "orchestration": "1", "network": "2", "image": "2"}


class JsonServer(ThreadingHTTPServer):
    """Listens at a free port of this machine; what it answers, each kind says itself.

    Attributes:
        asked: every question so far, as it calls them.
        ahead: of this machine's clock is the one by which its answers are dated.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.ahead = timedelta()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """What is answered; the path comes with its query."""
        raise NotImplementedError


class Services(JsonServer):
    """All services of a cloud at one address. What is asked for is answered by its script, the last line again."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: dict[str, list[Answer]] = {}

    def say(self, question: str, *answers: Answer) -> None:
        """What a question (``GET /volumes``) is answered, each time it is put."""
        self.scripts[question] = list(answers)

    def n_asked(self, question: str) -> int:
        return self.asked.count(question)

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """See JsonServer: by method and path, whatever the query."""
        question = f"{method} {path.partition('?')[0]}"
        self.asked.append(question)
        script = self.scripts.get(question, [GONE])
        return script.pop(0) if len(script) > 1 else script[0]


class _Handler(BaseHTTPRequestHandler):
    server: JsonServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, said = self.server.answer(self.command, self.path, body)
        text = (said if isinstance(said, str) else json.dumps(said)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if isinstance(said, str) else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((datetime.now(UTC) + self.server.ahead).timestamp())

    def log_message(self, format: str, *words: Any) -> None:
        """Log nothing."""


for _method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler._answer)

_Server = TypeVar("_Server", bound=JsonServer)


@contextmanager
def serving(server: _Server) -> Iterator[_Server]:
    """The server, which answers inside the block."""
    with server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


def connection_to(services: Services) -> "Connection":
    """A connection to the cloud whose services these are; it needs no Keystone."""
    import openstack

    for name, number in _VERSIONS.items():
        version = {"id": f"v{number}.0", "status": "CURRENT", "version": "99.99", "min_version": "1.0"}
        links = {"links": [{"rel": "self", "href": f"{services.url}/{name}/v{number}/"}]}
        for end in ("", "/"):
            services.say(f"GET /{name}/v{number}{end}", (200, {"version": {**version, **links}}))
    return openstack.connect(
        auth_type="none",
        auth={"endpoint": services.url},
        **{f"{name}_endpoint_override": f"{services.url}/{name}/v{number}" for name, number in _VERSIONS.items()},
        **{f"{name}_api_version": number for name, number in _VERSIONS.items()},
    )
