"""`docs/make_pictures.py` draws the pictures of the documents, here from simulated runs."""

import runpy
import struct
from pathlib import Path
from typing import Any

import pytest
from chromium_browser import CHROMIUM
from click.testing import CliRunner

from cephfit.cli.main import cephfit

ROOT = Path(__file__).resolve().parent.parent
SWEEP = """\
schema_version: 1
name: clients
configurations: {A: {}, ssd: {pool: {crush_rule: ssd}}}
measurement:
  cells: [4K-randread, 4K-randwrite]
  clients: 1
  volume_size: 64M
  repeats: 2
  run_seconds: 1
  seed: 1
  loads: {clients-2: {clients: 2}, clients-4: {clients: 4}}
"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def drawing() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "make_pictures.py"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "clients.yaml").write_text(SWEEP)
    store = tmp_path / "results.sqlite"
    words = ["sweep", "run", str(tmp_path / "clients.yaml"), "--target", "sim", "--store", str(store)]
    assert CliRunner().invoke(cephfit, words, catch_exceptions=False).exit_code == 0
    return store


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG file, from its header."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:])  # type: ignore[return-value]


@pytest.mark.slow
def test_a_report_and_a_run_over_clients_are_drawn(drawing: dict[str, Any], store: Path, tmp_path: Path) -> None:
    drawing["draw_report"](store, tmp_path / "report.png")
    assert size_of(tmp_path / "report.png") == drawing["REPORT_SIZE"]
    drawing["draw_scaling"](store, tmp_path / "scaling.png")
    width, height = size_of(tmp_path / "scaling.png")
    assert width == 1080
    assert height > 4 * 120 * 2, "four pictures of more than two inches: rate and latency of reads and of writes"


def test_the_documents_show_what_is_drawn(drawing: dict[str, Any]) -> None:
    assert {path.name for path in drawing["IMAGES"].iterdir()} == {"cpu-layers.png", "report.png", "scaling.png"}
