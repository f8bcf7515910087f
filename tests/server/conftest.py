"""A store of a simulated sweep, and one server for all tests that change nothing in it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from running_server import RunningServer, serving

import cephfit


@pytest.fixture(scope="session")
def simulated_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "sim.sqlite"
    cephfit.run_sweep("quick", target="sim", store=str(path))
    return path


@pytest.fixture(scope="session")
def server(simulated_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(simulated_store, tmp_path_factory.mktemp("state"), "--max-upload", "8M") as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120) as opened:
        yield opened
