"""Exchanges with a real OpenStack, recorded once and played to tests that have none.

What is kept of an exchange is what decides: method, address, status, answer. Tokens, passwords, what was sent and
ids of requests are not; addresses are those of services on their usual ports.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openstack
import vcr  # type: ignore[import-untyped]
from openstack.connection import Connection

FOLDER = Path(__file__).parents[1] / "cloud" / "recorded"
"""It has a folder of each OpenStack release with recordings: those of Debian 12 and 13."""
_release = ""
PASSWORD = "not-a-password"
TOKEN = "not-a-token"
PORTS = {
    "identity": 5000,
    "image": 9292,
    "placement": 8778,
    "compute": 8774,
    "network": 9696,
    "block-storage": 8776,
    "orchestration": 8004,
    "cloudformation": 8000,
}
_KEPT_HEADERS = ("content-type", "x-subject-token", "location")
_NEVER = "9999-12-31T23:59:59.000000Z"


@contextmanager
def released(release: str) -> Iterator[None]:
    """Play the recordings of a release inside the block."""
    global _release
    before, _release = _release, release
    try:
        yield
    finally:
        _release = before


@contextmanager
def played(name: str) -> Iterator[Any]:
    """Whatever is asked over HTTP inside the block is answered by a recording, each answer once and in order.

    Yields:
        The cassette, which knows what was asked.
    """
    with _recorder({}).use_cassette(str(FOLDER / _release / f"{name}.yaml"), record_mode="none") as cassette:
        yield cassette


@contextmanager
def recorded(name: str, folder: Path, addresses: Mapping[str, str]) -> Iterator[None]:
    """Record what is asked inside the block.

    Args:
        name: of the recording.
        folder: where it goes.
        addresses: texts in answers, by their replacement: addresses of services, names of hosts.
    """
    file = folder / f"{name}.yaml"
    file.unlink(missing_ok=True)
    with _recorder(addresses).use_cassette(str(file), record_mode="all") as cassette:
        yield
        cassette.data[:] = _without_repeats(cassette.data)
        cassette.dirty = True


def player() -> Connection:
    """A connection to the cloud of the recordings."""
    return openstack.connect(
        auth_url=f"http://127.0.0.1:{PORTS['identity']}/v3",
        username="cephfit",
        password=PASSWORD,
        project_name="cephfit",
        user_domain_name="Default",
        project_domain_name="Default",
        region_name="RegionOne",
        app_name="cephfit",
    )


def usual_addresses(cloud: Connection) -> dict[str, str]:
    """Where each service of a real cloud listens, by where it usually does."""
    found = {}
    access = cloud.session.auth.get_access(cloud.session)
    for service in access.service_catalog.catalog:
        for endpoint in service["endpoints"]:
            port = PORTS.get(str(service["type"]).replace("volumev3", "block-storage"))
            if port is not None:
                found[urlsplit(endpoint["url"]).netloc] = f"127.0.0.1:{port}"
    return found


def _recorder(addresses: Mapping[str, str]) -> Any:
    def usual(text: str) -> str:
        for ours, theirs in addresses.items():
            text = text.replace(ours, theirs)
        return text

    def request(sent: Any) -> Any:
        sent.uri = usual(sent.uri).removesuffix("?force=False")  # Cinder's default, which the SDK states
        sent.body = None
        sent.headers = {}
        return sent

    def response(answer: dict[str, Any]) -> dict[str, Any]:
        headers = {k: v for k, v in answer["headers"].items() if k.lower() in _KEPT_HEADERS}
        for key in headers:
            headers[key] = [TOKEN] if key.lower() == "x-subject-token" else [usual(v) for v in headers[key]]
        body = usual(answer["body"]["string"].decode())
        return {**answer, "headers": headers, "body": {"string": _plain(body).encode()}}

    return vcr.VCR(
        before_record_request=request,
        before_record_response=response if addresses else None,
        match_on=("method", "port", "path", "query"),
        decode_compressed_response=True,
    )


def _plain(body: str) -> str:
    """An answer without what is secret, passes, or is of no use here."""
    body = re.sub(r"req-[0-9a-f-]{36}", "req-0", body)
    try:
        found = json.loads(body)
    except ValueError:
        return body
    token = found.get("token") if isinstance(found, dict) else None
    if isinstance(token, dict) and "catalog" in token:
        token["expires_at"] = _NEVER
        token["audit_ids"] = ["-"]
        for service in token["catalog"]:
            service["endpoints"] = [e for e in service["endpoints"] if e["interface"] == "public"]
    return json.dumps(found)


def _without_repeats(exchanges: list[Any]) -> list[Any]:
    """Of what was asked again and again until it was over, two rounds of up to three questions."""
    kept: list[Any] = []
    for exchange in exchanges:
        kept.append(exchange)
        for n in (1, 2, 3):
            rounds = [kept[-n:], kept[-2 * n : -n], kept[-3 * n : -2 * n]]
            if any(map(_is_under_way, rounds[0])) and all(
                len(one) == n and all(map(_same, one, rounds[0])) for one in rounds
            ):
                del kept[-n:]
    return kept


def _is_under_way(exchange: Any) -> bool:
    return "IN_PROGRESS" in str(exchange[1]["body"])


def _same(one: Any, other: Any) -> bool:
    (asked, answered), (asked_then, answered_then) = one, other
    return (asked.method, asked.uri, answered["body"], answered["status"]) == (
        asked_then.method,
        asked_then.uri,
        answered_then["body"],
        answered_then["status"],
    )
