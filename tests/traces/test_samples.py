"""Public traces: their known counts."""

from pathlib import Path

from cephfit.core.values.cells import Op
from cephfit.traces import profile_files


def test_the_binary_vscsi_trace(samples: Path) -> None:
    found = profile_files([samples / "vscsi" / "cloudPhysicsIO.vscsi"])
    assert sum(found.accesses[Op.READ].values()) == 46_974
    assert sum(found.accesses[Op.WRITE].values()) == 66_898
    assert round(found.description["duration_seconds"]) == 7200


def test_the_mis_numbered_blktrace_file_is_read_in_full_and_its_text_gives_the_same(samples: Path) -> None:
    folder = samples / "blktrace" / "takeoverjp"
    raw = profile_files([folder / "sample.blktrace.0"])
    text = profile_files([folder / "blkparse-1.2.0.derived.txt"])
    assert sum(raw.description["events"].values()) == 6_741
    assert (raw.accesses, raw.random, raw.random_by_bin) == (text.accesses, text.random, text.random_by_bin)
    for same in ("histograms", "percentiles", "disks", "events", "skipped", "duration_seconds"):
        assert raw.description[same] == text.description[same]


def test_the_histogram_csv(samples: Path) -> None:
    found = profile_files([samples / "vscsi" / "er0080_sample_vscsiStats.csv"])
    assert found.n_accesses == 793
    assert sum(found.accesses[Op.READ].values()) == 4
    assert found.random[Op.READ] == 0.75  # distances of 4 reads: -215, 1, up to 500, and one far jump
    assert found.description["histograms"]["outstanding"]["all"]["counts"][0] == 551


def test_the_mqsim_trace(samples: Path) -> None:
    """Counted by awk: 2,618 rows of type 0 (writes), 4,381 of type 1."""
    found = profile_files([samples / "other" / "mqsim-tpcc-small.trace"])
    assert sum(found.accesses[Op.READ].values()) == 4_381
    assert sum(found.accesses[Op.WRITE].values()) == 2_618


def test_the_compressed_blkreplay_load_behind_its_notice(samples: Path) -> None:
    found = profile_files([samples / "other" / "windows-shared-server.load.gz"])
    assert sum(found.accesses[Op.WRITE].values()) == 1_371
    assert found.n_accesses == 1_371
    assert "latency_us" not in found.description["percentiles"]
