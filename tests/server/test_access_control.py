"""Who may use the server: token, Host, Origin."""

from pathlib import Path

import httpx
import pytest
from running_server import application, serving
from starlette.testclient import TestClient

from cephfit.server.access_control import Access

TOKEN = "a-token-of-the-tests"


def client_of(folder: Path, access: Access, url: str = "http://127.0.0.1:8765") -> TestClient:
    return TestClient(
        application(folder / "none.sqlite", folder, access=access), base_url=url, follow_redirects=False
    )


@pytest.mark.parametrize(
    ("host", "is_local", "status"),
    [
        ("127.0.0.1:8765", True, 200),
        ("localhost", True, 200),
        ("[::1]:8765", True, 200),
        ("evil.example", True, 400),  # DNS rebinding: the name of an attacker that points at 127.0.0.1
        ("192.0.2.7", True, 400),
        ("192.0.2.7:80", False, 200),
        ("evil.example", False, 400),
        ("storage.example:8765", False, 200),
        ("", True, 400),
        ("[", True, 400),
        ("127.0.0.1.evil.example", True, 400),
    ],
)
def test_only_names_of_this_server_are_answered(tmp_path: Path, host: str, is_local: bool, status: int) -> None:
    access = Access(is_local=is_local, host_names=("storage.example",))
    answer = client_of(tmp_path, access).get("/api/server", headers={"Host": host})
    assert answer.status_code == status
    assert status == 200 or "does not go by that name" in answer.json()["error"]["what"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 404),  # curl
        ({"Origin": "http://127.0.0.1:8765"}, 404),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),  # another server of this machine
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://127.0.0.1:8765", "Sec-Fetch-Site": "same-origin"}, 404),
    ],
)
def test_pages_of_other_sites_change_nothing(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    """404, not 403: the request passed, and only its workload does not exist."""
    client = client_of(tmp_path, Access())
    assert client.delete("/api/workloads/0123456789abcdef", headers=headers).status_code == status
    assert client.post("/workloads/0123456789abcdef/remove", headers=headers).status_code == status


def test_without_the_token_nothing_is_shown(tmp_path: Path) -> None:
    client = client_of(tmp_path, Access(token=TOKEN))
    for path in ("/api/server", "/api/openapi.json", "/api/runs", "/api/workloads"):
        assert client.get(path).status_code == 401
    for path in ("/", "/runs/x", "/static/page.js"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert client.post("/api/workloads", files={"file": b"x"}).status_code == 401
    assert client.get("/api/server", headers={"Authorization": f"Bearer {TOKEN}x"}).status_code == 401
    assert client.get("/api/server", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/api/server", headers={"Authorization": "Bearer \xe9".encode("latin-1")}).status_code == 401


def test_the_page_takes_the_token_once_and_keeps_a_cookie(tmp_path: Path) -> None:
    client = client_of(tmp_path, Access(token=TOKEN))
    assert "This server needs a token" in client.get("/login").text
    assert client.post("/login", data={"token": "wrong"}).status_code == 401
    answer = client.post("/login", data={"token": TOKEN})
    cookie = answer.headers["set-cookie"]
    assert (answer.status_code, "HttpOnly" in cookie, "SameSite=strict" in cookie) == (303, True, True)
    assert TOKEN not in cookie
    assert client.get("/").status_code == 200
    assert client.post("/login", content=b"x" * 5000).status_code == 413


def test_every_answer_forbids_scripts_of_others(tmp_path: Path) -> None:
    client = client_of(tmp_path, Access())
    for path in ("/", "/api/server", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "'unsafe-inline'" not in headers["content-security-policy"].split("script-src")[1]
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")


def test_another_address_gets_a_random_token_that_is_printed_once(tmp_path: Path) -> None:
    with serving(tmp_path / "none.sqlite", tmp_path, "--listen", "0.0.0.0") as server:
        token = server.printed.splitlines()[1].removeprefix("token: ")
        assert len(token) >= 32
        assert httpx.get(f"{server.url}/api/server").status_code == 401
        with_token = httpx.get(f"{server.url}/api/server", headers={"Authorization": f"Bearer {token}"})
        assert with_token.status_code == 200


def test_a_token_from_the_environment_is_not_in_the_list_of_processes(tmp_path: Path) -> None:
    with serving(tmp_path / "none.sqlite", tmp_path, CEPHFIT_SERVE_TOKEN=TOKEN) as server:
        assert httpx.get(f"{server.url}/api/server").status_code == 401
        answer = httpx.get(f"{server.url}/api/server", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200
        assert TOKEN.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
