"""Figures and page of operations on files, from samples with known rates and counters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cephfit.core.errors import InputError
from cephfit.core.protocols import Applied
from cephfit.core.units import KIB
from cephfit.core.values.cells import SIZE_BINS, Cell, FileCell, FileOperation
from cephfit.core.values.sample import Metrics, Run, Sample, SampleKey, State
from cephfit.results.report.operations_page import (
    operations_document,
    operations_page,
    read_operations,
    to_operations_csv,
    to_operations_html,
    to_operations_markdown,
)
from cephfit.results.statistics.operation_figures import operation_figures, window_of
from cephfit.results.store.sample_store import Store

CREATE, APPEND = FileCell.of(FileOperation.CREATE), FileCell.of(FileOperation.APPEND, SIZE_BINS[0])


def run(target: str, run_id: str = "") -> Run:
    return Run(run_id or f"run-{target}", "micro", "", "0" * 64, target, 1, 0, finished=True)


def sample(cell: FileCell, rate: float, *, repeat: int = 0, client: str = "c0", **evidence: Any) -> Sample:
    """100 operations at a rate."""
    nbytes = 100 * cell.size.benchmark_nbytes
    metrics = Metrics(rate, rate * cell.size.benchmark_nbytes, 100, round(100e9 / rate), 1e9 / rate, {99.0: 5e6})
    said = {
        "asked": {"operations": 100, "nbytes": nbytes},
        "load": {"iodepth": 1, "clients": 1, "sync": "fsync"},
        **evidence,
    }
    return Sample(SampleKey("A", cell, client, repeat), State.OK, metrics, 1, 2, evidence=said)


def moved(wire: int, written: int) -> dict[str, Any]:
    return {"wire_nbytes": wire, "disk_read_nbytes": None, "disk_written_nbytes": written}


def test_rates_add_up_over_clients_and_amplification_over_rounds() -> None:
    samples = [
        sample(APPEND, 200, moved=moved(900 * KIB, 1600 * KIB)),
        sample(APPEND, 300, client="c1"),
        sample(APPEND, 100, repeat=1, moved=moved(100 * KIB, 0)),
        sample(APPEND, 100, repeat=1, client="c1"),
    ]
    (found,) = operation_figures(run("lab"), samples)
    assert found.rates == pytest.approx((500, 200))
    assert found.rate == pytest.approx(350)
    # 4 x 100 accesses of 4K were asked for: 1600 KiB.
    assert found.amplification == {"wire": pytest.approx(1000 / 1600), "disk_written": pytest.approx(1.0)}
    assert found.p99_ns == 5e6


def test_names_have_bytes_per_operation() -> None:
    (found,) = operation_figures(run("lab"), [sample(CREATE, 10, volume={"written_nbytes": 800 * KIB})])
    assert found.amplification == {"volume_written": 8 * KIB}


def test_what_one_round_did_not_count_is_no_amplification() -> None:
    samples = [sample(CREATE, 10, moved=moved(1, 1)), sample(CREATE, 10, repeat=1)]
    assert operation_figures(run("lab"), samples)[0].amplification == {}


def measured(rates: dict[str, Sequence[float]]) -> list[tuple[Run, list[Sample]]]:
    return [(run(t), [sample(CREATE, rate, repeat=i) for i, rate in enumerate(some)]) for t, some in rates.items()]


@pytest.mark.parametrize(
    ("rates", "headline"),
    [
        ({"lab": [10, 12], "nfs:lab": [20, 22]}, "Fastest of 1 operation: nfs:lab in 1."),
        ({"lab": [10, 21], "nfs:lab": [20, 22]}, "Fastest of 1 operation: none; 1 have no clear order."),
        ({"lab": [10]}, "lab: from 10.00 per second (create, a flush after each operation) to 10.00"),
    ],
)
def test_the_page_begins_with_the_answer(rates: dict[str, Sequence[float]], headline: str) -> None:
    page = operations_page(measured(rates), {}, made_ns=0)
    assert page.headline.startswith(headline)
    assert headline.split("(")[0] in to_operations_html(page)
    text = to_operations_markdown(page)
    assert "| create | a flush after each operation |" in text
    assert to_operations_csv(page).count("\n") == 1 + len(rates)
    assert operations_document(page)["operations"][0]["per_second"] == pytest.approx(
        sum(next(iter(rates.values()))) / len(next(iter(rates.values())))
    )


def test_bandwidth_x_round_trip_is_compared_with_what_was_in_flight() -> None:
    """100 Mbit/s x 50 ms are 625000 bytes; one access of 4K at a time is always in flight."""
    one = run("lab")
    settings = {
        f"greater/client_network/{text}": {} for text in ("rate_mbit = 100", "delay_ms = 25", "loss_pct = 1")
    }
    applied = Applied("A", True, (), settings)
    window = window_of(applied)
    assert window is not None
    assert window.nbytes == pytest.approx(625_000)
    page = operations_page([(one, [sample(APPEND, 20)])], {one.run_id: [applied]}, made_ns=0)
    assert page.notes[-1].startswith(
        "A: bandwidth x round trip is 610.4 KiB (100 Mbit/s, 50 ms). At most 4.00 KiB"
    )
    assert window_of(Applied("A", True, (), {"greater/client_network/delay_ms = 25": {}})) is None


def test_names_in_the_data_cannot_change_the_page() -> None:
    page = operations_page(measured({"<script>": [10], "|x": [20]}), {}, made_ns=0)
    assert "<script>" not in to_operations_html(page)
    assert "| |x |" not in to_operations_markdown(page)


def test_runs_of_blocks_and_of_files_share_no_page(tmp_path: Path) -> None:
    with Store.open(tmp_path / "results.sqlite", create=True) as store:
        files, blocks = run("lab"), run("lab", "blocks")
        for one, cell in ((files, CREATE), (blocks, Cell.parse("4K-read"))):
            store.add_run(one)
            metrics = Metrics(1, 1, 1, 1, 1)
            store.add_samples(
                one.run_id, [Sample(SampleKey("A", cell, "c0", 0), State.OK, metrics, 1, 2)], fio_json=None
            )
        assert [s.key.cell for s in store.file_samples(files.run_id)] == [CREATE]
        assert [s.key.cell for s in store.samples(blocks.run_id)] == [Cell.parse("4K-read")]
        with pytest.raises(InputError, match="has no operations on files"):
            read_operations(store, [files, blocks], made_ns=0)
