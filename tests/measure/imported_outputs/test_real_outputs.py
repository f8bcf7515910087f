"""Outputs of the real fio: its formats agree with each other, and real files of others are read."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cephfit.core.values.cells import Pattern
from cephfit.measure.imported_outputs.output_reader import FileHints, ImportedResult
from cephfit.operations.imported_files import output_readers, reader_called

SAMPLES = Path(os.environ.get("CEPHFIT_SAMPLES", "/nowhere")) / "fio"

NO_HINTS = FileHints()


def fio(folder: Path, *options: str, form: str = "json") -> str:
    """Run fio for a second on a file of 8 MiB through the page cache."""
    common = (f"--filename={folder}/file", "--size=8m", "--ioengine=libaio", "--time_based", "--runtime=1")
    command = ("fio", "--name=job", *common, *options, f"--output-format={form}")
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout


def one(text: str, name: str, hints: FileHints = NO_HINTS) -> ImportedResult:
    content = reader_called(name).read(text, hints)
    assert not content.not_understood
    (result,) = content.results
    return result


@pytest.mark.fio
def test_one_run_has_the_same_figures_in_all_formats(tmp_path: Path) -> None:
    """fio writes all of them into one output; the normal one has rates rounded to three digits."""
    text = fio(tmp_path, "--rw=randread", "--bs=16k", "--iodepth=4", form="normal,terse,json")
    exact = one(text, "fio-json")
    assert next(reader.name for reader in output_readers() if reader.sniff(text)) == "fio-json"
    assert (exact.pattern, exact.nbytes, exact.iodepth) == (Pattern.RANDREAD, 16384, 4)
    (job,) = json.loads(text[text.index("{") : text.rindex("}") + 1])["jobs"]
    assert exact.metrics.iops == pytest.approx(job["read"]["iops"], rel=0.01)
    for name in ("fio-text", "fio-terse"):
        other = one(text, name, FileHints(Pattern.RANDREAD, 16384, 4))
        assert other.iodepth == 4
        assert other.metrics.iops == pytest.approx(exact.metrics.iops, rel=0.01)
        assert other.metrics.latency_mean_ns == pytest.approx(exact.metrics.latency_mean_ns, rel=0.02)


@pytest.mark.fio
def test_options_of_the_real_fio(tmp_path: Path) -> None:
    grouped = one(fio(tmp_path, "--rw=randread", "--bs=4k", "--numjobs=3", "--group_reporting"), "fio-json")
    assert grouped.iodepth == 3
    apart = one(fio(tmp_path, "--rw=randread", "--bs=4k", "--numjobs=3"), "fio-json")
    assert apart.iodepth == 3
    plus = fio(tmp_path, "--rw=randrw", "--rwmixread=75", "--bs=64k", "--iodepth=2", form="json+")
    mixed = reader_called("fio-json").read(plus, FileHints()).results
    assert [(r.pattern.value, r.read_pct) for r in mixed] == [("randread", 75), ("randwrite", 75)]
    synced = one(fio(tmp_path, "--rw=randwrite", "--bs=4k", "--fsync=8"), "fio-json")
    assert synced.sync == "every 8"


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="CEPHFIT_SAMPLES is not set")
def test_files_of_fio_plot_have_the_rates_that_fio_states() -> None:
    """fio 3.6 on RBD; the name says pattern, iodepth and numjobs (fio-plot's layout)."""
    files = sorted(SAMPLES.rglob("*.json"))
    assert len(files) >= 16
    for file in files:
        pattern, depth, jobs = file.stem.split("-")
        found = one(file.read_text(), "fio-json")
        assert (found.pattern, found.nbytes) == (pattern, 4096)
        assert found.iodepth == int(depth) * int(jobs)
        side = json.loads(file.read_text())["jobs"][0]["read" if pattern == "randread" else "write"]
        assert found.metrics.iops == pytest.approx(side["iops"], rel=0.001)
