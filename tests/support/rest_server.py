"""A server that answers ceph-rest-api's calls from a real cluster, over librados.

As the original (ceph_rest_api.py of Ceph up to Luminous): the addresses come from the cluster's own descriptions
of its commands; what needs the right to write is PUT and not GET; unknown and missing arguments are refused with
400, as is what the cluster refuses, with its words and errno; JSON answers are wrapped with a status.
"""

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import rados

BASE = "/api/v0.1/"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One command: its method and the names of its arguments, each with whether it must be given and its type."""

    method: str
    arguments: Mapping[str, tuple[bool, str]]


def endpoints_of(descriptions: str, *, flags_as_choices: bool) -> dict[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = {}
    for command in json.loads(descriptions).values():
        words: list[str] = []
        arguments: dict[str, tuple[bool, str]] = {}
        for part in command["sig"]:
            if isinstance(part, str):
                words.append(part)
                continue
            name, kind = part["name"], part["type"]
            if flags_as_choices and name.startswith("yes_i_really"):
                name, kind = ("sure" if "really_really" in name else "force"), "CephChoices"
            repeated = "List" if part.get("n") == "N" else ""
            arguments[name] = (str(part.get("req", "true")).lower() != "false", kind + repeated)
        method = "PUT" if "w" in command.get("perm", "r") else "GET"
        found.setdefault("/".join(words), []).append(Endpoint(method, arguments))
    return found


class _Cluster:
    def __init__(self, conf: Path, *, flags_as_choices: bool, timeout_seconds: float) -> None:
        timeout = str(timeout_seconds)
        options = {
            "client_mount_timeout": timeout,
            "rados_mon_op_timeout": timeout,
            "rados_osd_op_timeout": timeout,
        }
        self.handle = rados.Rados(conffile=str(conf), rados_id="admin", conf=options)
        self.handle.connect()
        ask = json.dumps({"prefix": "get_command_descriptions"})
        osd = json.loads(self.handle.mon_command(json.dumps({"prefix": "osd ls", "format": "json"}), b"")[1])[0]
        _, of_monitors, _ = self.handle.mon_command(ask, b"")
        _, of_osds, _ = self.handle.osd_command(osd, ask, b"")
        self.endpoints = endpoints_of(of_monitors.decode(), flags_as_choices=flags_as_choices)
        self.osd_endpoints = endpoints_of(of_osds.decode(), flags_as_choices=flags_as_choices)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up, such as killed ones; report other errors as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    cluster: _Cluster
    old_flags: bool

    def do_GET(self) -> None:
        self._serve("GET")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self, method: str) -> None:
        address = urlsplit(self.path)
        path = address.path.removeprefix(BASE)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target, known = "", self.cluster.endpoints
        if path.startswith("tell/"):
            _, target, path = path.split("/", 2)
            known = self.cluster.osd_endpoints
        if path not in known:
            return self._answer(400, b"", f"Invalid endpoint {self.path}")
        fitting = [e for e in known[path] if e.method == method]
        if not fitting:
            return self._send(405, b"Method Not Allowed", "text/html")
        given = parse_qs(address.query, keep_blank_values=True)
        try:
            arguments = self._arguments(fitting[0], given)
        except ValueError as error:
            return self._answer(400, b"", f"{error}\n")
        wants_json = "application/json" in self.headers.get("Accept", "")
        text = json.dumps(
            {"prefix": path.replace("/", " "), **arguments, **({"format": "json"} if wants_json else {})}
        )
        if target:
            code, output, words = self.cluster.handle.osd_command(int(target.removeprefix("osd.")), text, data)
        else:
            code, output, words = self.cluster.handle.mon_command(text, data)
        if code:
            return self._answer(400, b"", f"Error: {words} ({code})")
        return self._answer(200, output, words or "OK")

    def _arguments(self, endpoint: Endpoint, given: Mapping[str, list[str]]) -> dict[str, Any]:
        missing = [n for n, (must, _) in endpoint.arguments.items() if must and n not in given]
        if missing:
            raise ValueError(f"missing required parameter {missing[0]}")
        unused = {name: value for name, value in given.items() if name not in endpoint.arguments}
        if unused:
            raise ValueError(f"unused arguments: {unused}")
        arguments: dict[str, Any] = {}
        for name, values in given.items():
            kind = endpoint.arguments[name][1]
            if kind == "CephChoices" and values[0].startswith("--"):  # the cluster behind is younger
                arguments[values[0].strip("-").replace("-", "_")] = True
            elif kind.endswith("List"):
                arguments[name] = values
            elif kind == "CephInt":
                arguments[name] = int(values[0])
            elif kind == "CephBool":
                arguments[name] = values[0] == "true"
            elif kind == "CephOsdName":
                arguments[name] = int(values[0].removeprefix("osd."))
            else:
                arguments[name] = values[0]
        return arguments

    def _answer(self, http_status: int, output: bytes, status: str) -> None:
        if "application/json" not in self.headers.get("Accept", ""):
            ends = b"" if http_status == 200 else f"\n{status}\n".encode()
            return self._send(http_status, output + ends, "text/plain")
        try:
            said = {"output": json.loads(output or b"[]"), "status": status}
        except ValueError:
            return self._send(500, b"Error decoding JSON from " + output, "text/html")
        return self._send(http_status, json.dumps(said).encode(), "application/json")

    def _send(self, http_status: int, content: bytes, kind: str) -> None:
        self.send_response(http_status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def rest_api(conf: Path, *, flags_as_choices: bool = False, timeout_seconds: float = 15) -> Iterator[str]:
    """The address of a running server for a cluster.

    Args:
        flags_as_choices: confirmations are named and spelled as before Nautilus.
        timeout_seconds: how long the server waits for the cluster.
    """
    cluster = _Cluster(conf, flags_as_choices=flags_as_choices, timeout_seconds=timeout_seconds)
    try:
        with serving(cluster) as address:
            yield address
    finally:
        cluster.handle.shutdown()


@contextmanager
def serving(cluster: Any) -> Iterator[str]:
    """The address of a running server for what answers as ``_Cluster`` does."""
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, name="ceph-rest-api")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{BASE}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
