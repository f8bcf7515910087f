"""Merges of stores: nothing lost, nothing doubled, all or nothing."""

import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from example_run import RUN_ID, example_run, example_samples, fill

from cephfit.cli.reports.runs_command import command as runs
from cephfit.core.errors import InputError, StoreError
from cephfit.results.store import run_copies
from cephfit.results.store.sample_store import Store


@pytest.fixture
def full(tmp_path: Path) -> Path:
    path = tmp_path / "full.sqlite"
    with Store.open(path, create=True) as store:
        fill(store)
    return path


def everything(path: Path) -> tuple[Any, ...]:
    """All that a user can read of the run."""
    with Store.open(path) as store:
        samples = store.samples(RUN_ID)
        fio = [store.fio_json(RUN_ID, sample.key) for sample in samples]
        kinds = store.documents(RUN_ID)
        documents = [store.document(RUN_ID, kind) for kind, _ in kinds]
        applied, workloads = store.applied(RUN_ID), store.workload_samples(RUN_ID)
        return store.run(RUN_ID), samples, fio, kinds, documents, applied, workloads


def merge(into: Path, *others: Path) -> list[Any]:
    found = []
    for other in others:
        words = ["merge", str(other), "--store", str(into), "--json"]
        done = CliRunner().invoke(runs, words, catch_exceptions=False)
        assert done.exit_code == 0
        found.append(json.loads(done.output))
    return found


def test_a_merge_into_a_new_store_has_everything_and_a_second_adds_nothing(full: Path, tmp_path: Path) -> None:
    first, second = merge(tmp_path / "new.sqlite", full, full)
    n = sum(map(len, example_samples()))
    assert (first[0]["run"], first[0]["new"], first[0]["samples"]) == (RUN_ID, True, n)
    assert first[0]["others"] > 0
    assert second == [{"run": RUN_ID, "new": False, "samples": 0, "others": 0}]
    assert everything(tmp_path / "new.sqlite") == everything(full)
    assert merge(full, full) == [second]


def test_halves_of_a_run_become_the_whole(full: Path, tmp_path: Path) -> None:
    groups = example_samples()
    for i, name in enumerate(("even", "odd")):
        with Store.open(tmp_path / name, create=True) as store:
            store.add_run(replace(example_run(), finished=False))
            for group in groups[i::2]:
                store.add_samples(RUN_ID, group, fio_json=f'{{"of": "{group[0].key}"}}')
    merge(tmp_path / "whole", tmp_path / "even", tmp_path / "odd")
    with Store.open(tmp_path / "whole") as whole:
        by_key = {sample.key: sample for sample in whole.samples(RUN_ID)}
        assert by_key == {sample.key: sample for group in groups for sample in group}
        assert not whole.run(RUN_ID).finished
        for group in groups[:6]:  # each sample has the output of its own fio run, whatever number it got
            assert {whole.fio_json(RUN_ID, s.key) for s in group} == {f'{{"of": "{group[0].key}"}}'}
    merge(tmp_path / "whole", full)
    with Store.open(tmp_path / "whole") as whole:
        assert whole.run(RUN_ID).finished


@pytest.mark.parametrize("what", ["sample", "run"])
def test_a_conflict_is_refused_and_nothing_of_any_run_is_written(full: Path, tmp_path: Path, what: str) -> None:
    other = tmp_path / "other.sqlite"
    older = replace(example_run(), run_id="older", created_ns=1)
    with Store.open(other, create=True) as store:
        store.add_run(older)
        run, group = example_run(), example_samples()[0]
        if what == "run":
            run = replace(run, seed=run.seed + 1)
        else:
            group = [replace(sample, finished_ns=sample.finished_ns + 1) for sample in group]
        store.add_run(run)
        store.add_samples(RUN_ID, group, fio_json=None)
    before = everything(full)
    with Store.open(full) as store, Store.open(other) as source:
        with pytest.raises(StoreError, match=r"(another one|different content)[\s\S]*nothing was written"):
            store.merge(source)
        assert [r.run_id for r in store.runs()] == [RUN_ID]
    assert everything(full) == before


def _merge_and_die(into: Path, other: Path) -> None:
    """Killed when the samples are written, before the documents are."""
    whole, seen = run_copies._merge_rows, 0

    def rows_or_death(*arguments: Any, **options: Any) -> int:
        nonlocal seen
        seen += 1
        if seen == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*arguments, **options)

    run_copies._merge_rows = rows_or_death
    with Store.open(other) as source, Store.open(into) as store:
        store.merge(source)


def test_a_merge_that_is_killed_leaves_the_store_as_it_was(full: Path, tmp_path: Path) -> None:
    into = tmp_path / "into.sqlite"
    with Store.open(into, create=True) as store:
        store.add_run(replace(example_run(), run_id="mine"))
    process = multiprocessing.get_context("spawn").Process(target=_merge_and_die, args=(into, full))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with Store.open(into) as store:
        assert [run.run_id for run in store.runs()] == ["mine"]
    merge(into, full)
    assert everything(into) == everything(full)


def test_a_read_only_store_can_be_merged_from_but_not_into(full: Path, tmp_path: Path) -> None:
    copy = tmp_path / "archive.sqlite"
    shutil.copy(full, copy)
    with Store.open(copy) as source, Store.open(tmp_path / "n.sqlite", create=True) as store:
        assert store.merge(source)[0].is_new
    with pytest.raises((StoreError, InputError), match="no store of results"):
        CliRunner().invoke(runs, ["merge", str(tmp_path / "gone"), "--store", str(full)], catch_exceptions=False)


def test_samples_as_parquet_are_those_of_the_store(full: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "samples.parquet"
    words = ["export", RUN_ID, "--store", str(full), "-o", str(path)]
    assert CliRunner().invoke(runs, words, catch_exceptions=False).exit_code == 0
    table = pq.read_table(path)
    expected = [sample for group in example_samples() for sample in group]
    assert table.num_rows == len(expected)
    rows = table.to_pylist()
    assert [row["configuration"] for row in rows] == [s.key.configuration for s in expected]
    assert [row["state"] for row in rows] == [s.state.value for s in expected]
    for row, sample in zip(rows, expected, strict=True):
        assert row["iops"] == (sample.metrics and sample.metrics.iops)
        assert dict(row["latency_percentiles_ns"] or ()) == (
            dict(sample.metrics.latency_percentiles_ns) if sample.metrics else {}
        )
        assert json.loads(row["evidence"]) == sample.evidence
    metadata = json.loads(table.schema.metadata[b"cephfit"])
    assert (metadata["run"], metadata["schema_version"]) == (RUN_ID, 1)


def test_every_column_of_the_parquet_file_is_documented() -> None:
    from cephfit.results.tables.sample_tables import PARQUET_COLUMNS

    text = (Path(__file__).parents[2] / "docs" / "runs.md").read_text()
    section = text.partition("### The Parquet file")[2].partition("###")[0]
    assert [name for name in PARQUET_COLUMNS if f"`{name}`" not in section] == []
