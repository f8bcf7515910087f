"""The pages in a real browser: no complaint on the console, nothing cut off on a phone."""

import re
from html import unescape
from pathlib import Path

import httpx
import pytest
from chromium_browser import CHROMIUM, load_address
from running_server import TRACE, RunningServer, settled

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


@pytest.mark.parametrize("width", [pytest.param(1400, marks=pytest.mark.slow), 500])
def test_the_pages_load_without_complaint_and_without_cut_parts(
    server: RunningServer, client: httpx.Client, tmp_path: Path, width: int
) -> None:
    """500 px is the narrowest window of headless Chromium; the styles for phones hold up to 640 px."""
    found = settled(client, client.post("/api/workloads", files={"file": ("<i>pg</i>".replace("/", "-"), TRACE)}))
    run = client.get("/api/runs").json()[0]["run"]
    for path in ("/", f"/runs/{run}", f"/workloads/{found['id']}?baselines=store&objective=p99"):
        document, console = load_address(server.url + path, tmp_path / "profile", f"--window-size={width},900")
        assert (path, console) == (path, [])
        assert "<h1" in document and "cephfit" in document
    assert "&lt;i&gt;pg&lt;-i&gt;" in document
    assert "Best: " in document and document.count("<svg") > 8


def test_the_page_of_a_run_refreshes_itself(server: RunningServer) -> None:
    """The script is served, is allowed by the policy, and loads nothing from elsewhere."""
    page = httpx.get(f"{server.url}/").text
    sources = re.findall(r'(?:src|href)="([^"#]*)"', page)
    assert "/static/page.js" in sources
    assert not [source for source in map(unescape, sources) if "//" in source]
    assert "data-live" in httpx.get(f"{server.url}/static/page.js").text
