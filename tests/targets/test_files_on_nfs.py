"""Operations on files in the export of a real NFS server: their number, what they leave, and what they move."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backend_servers import opener, server_on
from target_contract import DEFAULT, VOLUME_NBYTES

from cephfit.core.units import KIB, MIB
from cephfit.core.values.cells import SIZE_BINS, FileCell, FileOperation
from cephfit.measure.engine import CellRun
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.preflight import engine_of

TEXT = """
schema_version: 1
name: nfs
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


@pytest.mark.root
@pytest.mark.backends
def test_operations_reach_the_server_and_its_disk(tmp_path: Path, loop_device: Callable[[int], Path]) -> None:
    measurement = parse_sweep(TEXT, file="nfs.yaml").measurement
    with server_on("nfs", tmp_path, loop_device(256 * MIB)) as server:
        target: Any = opener("nfs", server, tmp_path, existing=False)()
        target.apply(DEFAULT, n_clients=1, volume_nbytes=VOLUME_NBYTES, fill=False)
        engine: Any = engine_of(target, measurement)
        exported = server._network.path(server._mounted_at)  # type: ignore[attr-defined]
        for operation, (n, nbytes) in EXPECTED.items():
            cell = FileCell.of(operation, SIZE_BINS[0])
            run = CellRun("A", cell, 0, 0, measurement, target.clients(), {"c0": 1})
            engine.prepare(run)
            target.drop_caches()
            given = engine.run(run).clients["c0"]
            assert given.metrics is not None, given.failure
            assert given.evidence["asked"] == {"operations": n, "nbytes": nbytes, "place": "nfs"}
            moved = given.evidence["moved"]
            assert moved["wire_nbytes"] > nbytes + 100 * n, "a call and an answer for each"
            if operation.op == "write":
                assert moved["disk_written_nbytes"] >= max(nbytes, 4 * KIB), "it is durable when it returns"
        files = [path for path in exported.rglob("*") if path.is_file() and path.suffix != ".img"]
        assert len(files) == 10
        assert sum(file.stat().st_size for file in files) == 10 * 8 * KIB + 20 * 4 * KIB
        target.reset()
        assert not list(exported.glob("cephfit-*"))
        target.close()
