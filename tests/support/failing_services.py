"""A cloud whose services fail for a while: a proxy before each of them that answers instead of it now and then."""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml
from openstack.connection import Connection

SERVICES = {
    "compute": "compute",
    "volumev3": "block_storage",
    "block-storage": "block_storage",
    "orchestration": "orchestration",
    "image": "image",
    "network": "network",
}
"""What the catalogue calls them, and what clouds.yaml does."""
_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|\d{5,}")
_OF_VERSIONS = re.compile(r"/?(v[\d.]+/?(ID)?)?/?")
"""Paths at which services report their versions. If these fail, the SDK accepts wrong addresses."""
_PAGE = "<html><head><title>{0}</title></head>\n<body><center><h1>{0}</h1></center><hr>gateway</body></html>\n"
_NOT_ASKED = ((503, "503 Service Unavailable"), (429, "429 Too Many Requests"))
_LOST = (502, "502 Bad Gateway")
_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")


class FailingServer(ThreadingHTTPServer):
    """A proxy of one service. Every kind of call fails twice before it is answered.

    Kinds differ by method and path, without ids and numbers. The first call does not reach the service
    and is answered 503, or 429 every other time; the second reaches the service, and its answer is lost
    (502). Pages are HTML, as gateways have them.

    Args:
        service: ``http://HOST:PORT/PATH``.
    """

    daemon_threads = True

    def __init__(self, service: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = urlsplit(service)
        self.seen: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens, with the service's own path."""
        address = f"127.0.0.1:{self.server_address[1]}"
        return urlunsplit(("http", address, self.service.path, "", ""))


class _Handler(BaseHTTPRequestHandler):
    server: FailingServer
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        what = json.loads(body) if body[:1] == b"{" else {}
        # An action is named in what is sent.
        path = _IDS.sub("ID", urlsplit(self.path).path)
        kind = f"{self.command} {path} {' '.join(what)}".rstrip()
        with self.server.lock:
            self.server.seen[kind] += 1
            n = 3 if _OF_VERSIONS.fullmatch(path) else self.server.seen[kind]
            n_kinds = len(self.server.seen)
        if n == 1:
            self._page(*_NOT_ASKED[n_kinds % 2])
            return
        asked = HTTPConnection(str(self.server.service.hostname), self.server.service.port, timeout=120)
        headers = {key: value for key, value in self.headers.items() if key.lower() not in _HOP_BY_HOP}
        asked.request(self.command, self.path, body=body, headers=headers)
        answer = asked.getresponse()
        text = answer.read()
        asked.close()
        if n == 2:
            self._page(*_LOST)
            return
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in _HOP_BY_HOP:
                self.send_header(key, value)
        self._send(text, has_length=answer.status != 204)

    def _page(self, status: int, title: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self._send(_PAGE.format(title).encode())

    def _send(self, text: bytes, *, has_length: bool = True) -> None:
        if has_length:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, format: str, *words: Any) -> None:
        """Log nothing."""


for _method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"):
    setattr(_Handler, f"do_{_method}", _Handler._answer)


@contextmanager
def failing(cloud: Connection, clouds_yaml: Path, folder: Path) -> Iterator[tuple[str, dict[str, FailingServer]]]:
    """A cloud of the same name and project, each service of which is reached through a ``FailingServer``.

    Yields:
        The clouds.yaml that has it, and the servers by service.
    """
    document = yaml.safe_load(clouds_yaml.read_text())
    mine = document["clouds"][cloud.config.name]
    catalogue = cloud.session.auth.get_access(cloud.session).service_catalog.get_endpoints(interface="public")
    with ExitStack() as stack:
        servers = {}
        for found in catalogue.keys() & SERVICES.keys():
            service, (endpoint, *_) = SERVICES[found], catalogue[found]
            server = stack.enter_context(FailingServer(str(endpoint["url"])))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            servers[service] = server
            mine[f"{service}_endpoint_override"] = server.url
        file = folder / "failing.yaml"
        file.write_text(yaml.safe_dump(document))
        file.chmod(0o600)
        yield str(file), servers
