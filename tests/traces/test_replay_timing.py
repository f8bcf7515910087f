"""Replayed accesses are matched with fio's log: the k-th of an op, offset and size is the k-th issued one."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.traces.replay import fio_replay
from cephfit.traces.replay.fio_replay import Issues, matched, read_log

ACCESS = st.tuples(st.integers(0, 3), st.sampled_from([512, 4096]))


def issues(rows: list[tuple[int, int]], times: list[float]) -> Issues:
    columns = np.array(rows, np.int64).reshape(-1, 2)
    return Issues(np.array(times), columns[:, 0], columns[:, 1])


@given(st.lists(ACCESS, max_size=40), st.lists(ACCESS, max_size=40), st.randoms())
@pytest.mark.parametrize("at_once", [1 << 20, 7])
def test_the_kth_is_the_kth(
    at_once: int, planned: list[tuple[int, int]], logged: list[tuple[int, int]], chance: st.DataObject
) -> None:
    """Compared with dictionaries of lists; some accesses are only in one of the two."""
    times = [float(chance.random()) for _ in logged]  # type: ignore[attr-defined]
    waiting = defaultdict(list)
    for row in sorted(range(len(logged)), key=lambda row: times[row]):
        waiting[logged[row]].append(row)
    expected = [waiting[access].pop(0) if waiting[access] else -1 for access in planned]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fio_replay, "_MATCHED_AT_ONCE", at_once)
        found = matched(issues(planned, [0.0] * len(planned)), issues(logged, times))
    assert found.tolist() == expected


def test_a_log_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fio: ms of completion, ns of latency, op, bytes, offset, priority."""
    (tmp_path / "log").write_text(
        "".join(f"{10 + i}, {500_000 * i}, {i % 2}, 4096, {4096 * i}, 0\n" for i in range(100))
    )
    monkeypatch.setattr(fio_replay, "_LINES_AT_ONCE", 7)
    found, latency_us = read_log(tmp_path / "log")
    assert found.time_ms.tolist() == [10 + 0.5 * i for i in range(100)]
    assert found.place.tolist() == [16 * i + i % 2 for i in range(100)]
    assert set(found.nbytes.tolist()) == {4096}
    assert latency_us.tolist() == [500 * i for i in range(100)]
