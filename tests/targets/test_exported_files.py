"""Operations on files of real servers: their number, what they leave, and what they move."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backend_servers import opener, server_on
from target_contract import DEFAULT, VOLUME_NBYTES

from cephfit.core.errors import ClusterError
from cephfit.core.units import KIB, MIB
from cephfit.core.values.cells import SIZE_BINS, FileCell, FileOperation
from cephfit.measure.engine import CellRun, ClientOutcome
from cephfit.measure.micro.micro_engine import MicroEngine
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.preflight import engine_of
from cephfit.targets.backends.swift_target import SwiftAccount, parse_swift

TEXT = """
schema_version: 1
name: files
configurations: {A: {why: defaults}}
measurement: {engine: micro, files: 10, file_size: 8K, clients: 1, volume_size: 8M, repeats: 1, run_seconds: 5,
  seed: 1}
"""
EXPECTED = {
    FileOperation.CREATE: (10, 0),
    FileOperation.RENAME: (10, 0),
    FileOperation.LIST: (1, 0),
    FileOperation.DELETE: (10, 0),
    FileOperation.APPEND: (20, 20 * 4 * KIB),
}
"""Operation to the number that is done, and the bytes that are written."""

pytestmark = [pytest.mark.root, pytest.mark.backends]


class Files:
    """The files of one client on one server."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self._measurement = parse_sweep(TEXT, file="files.yaml").measurement
        self._engine: Any = engine_of(target, self._measurement)

    def with_secrets(self, secrets: tuple[tuple[str, str], ...]) -> "Files":
        """The same files with another key."""
        self._engine = MicroEngine(place_of=lambda client: replace(self.target.files_of(client), secrets=secrets))
        return self

    def done(self, operation: FileOperation) -> ClientOutcome:
        """Restore the files, and do an operation."""
        cell = FileCell.of(operation, SIZE_BINS[0])
        run = CellRun("A", cell, 0, 0, self._measurement, self.target.clients(), {"c0": 1})
        self._engine.prepare(run)
        self.target.drop_caches()
        found: ClientOutcome = self._engine.run(run).clients["c0"]
        return found


@contextmanager
def files_on(server: Any, folder: Path) -> Iterator[Files]:
    target: Any = opener(server.protocol, server, folder, existing=False)()
    target.apply(DEFAULT, n_clients=1, volume_nbytes=VOLUME_NBYTES, fill=False)
    yield Files(target)
    target.close()


def moved_by(given: ClientOutcome, n: int, nbytes: int, place: str) -> dict[str, int]:
    """What an operation moved, after a look at what was done."""
    assert given.metrics is not None, given.failure
    assert given.evidence["asked"] == {"operations": n, "nbytes": nbytes, "place": place}
    moved: dict[str, int] = given.evidence["moved"]
    assert moved["wire_nbytes"] > nbytes + 100 * n, "a call and an answer for each"
    return moved


def test_operations_reach_an_nfs_server_and_its_disk(tmp_path: Path, loop_device: Callable[[int], Path]) -> None:
    with server_on("nfs", tmp_path, loop_device(256 * MIB)) as server, files_on(server, tmp_path) as files:
        exported = server._network.path(server._mounted_at)  # type: ignore[attr-defined]
        for operation, (n, nbytes) in EXPECTED.items():
            moved = moved_by(files.done(operation), n, nbytes, "nfs")
            if operation.op == "write":
                assert moved["disk_written_nbytes"] >= max(nbytes, 4 * KIB), "it is durable when it returns"
        left = [path for path in exported.rglob("*") if path.is_file() and path.suffix != ".img"]
        assert len(left) == 10
        assert sum(file.stat().st_size for file in left) == 10 * 8 * KIB + 20 * 4 * KIB
        files.target.reset()
        assert not list(exported.glob("cephfit-*"))


@pytest.mark.slow
def test_operations_reach_the_objects_of_swift_through_its_s3_interface(
    tmp_path: Path, loop_device: Callable[[int], Path]
) -> None:
    with server_on("swift", tmp_path, loop_device(400 * MIB)) as server, files_on(server, tmp_path) as files:
        account = SwiftAccount(
            parse_swift(server.address.partition(":")[2]),
            server.key,  # type: ignore[attr-defined]
            enter=server.enter,
        )
        container = "cephfit-1"
        for operation, (n, nbytes) in EXPECTED.items():
            moved_by(files.done(operation), n, nbytes, "s3")
        left = [account.state(container, name) for name in account.names(container, "cephfit-")]
        nbytes_left = [
            int(state["Content Length"]) for state in left if state["Content Type"] != "application/x-directory"
        ]
        assert len(nbytes_left) == 10
        assert sum(nbytes_left) == 10 * 8 * KIB + 20 * 4 * KIB
        with pytest.raises(ClusterError, match=r"s3fs cannot mount cephfit-1: .*[Ii]nvalid [Cc]redentials"):
            files.with_secrets((("AWSACCESSKEYID", "cephfit:lab"), ("AWSSECRETACCESSKEY", "wrong"))).done(
                FileOperation.CREATE
            )
        files.target.reset()
        assert account.names(container, "cephfit-") == []
