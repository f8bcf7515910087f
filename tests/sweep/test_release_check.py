"""What `sweep plan` says on releases of Ceph, against facts of Ceph's release notes."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner

from cephfit.ceph.options.option_archive import differing_defaults
from cephfit.cli.sweep.sweep_commands import command as sweep_command
from cephfit.cli.sweep.sweep_planned import releases_document
from cephfit.core.errors import InputError
from cephfit.core.protocols import Target
from cephfit.sweep.declaration.sweep_file import bundled_sweep, bundled_sweeps, parse_sweep, read_sweep
from cephfit.sweep.release_check import (
    lacking_settings,
    release_notes,
    releases_called,
    require_settings,
    unset_defaults,
)
from cephfit.sweep.sweep_plan import Sweep

MEASUREMENT = """
measurement:
  {sizes: [4K], patterns: [%s], clients: 1, volume_size: 16M, repeats: 2, run_seconds: 1, seed: 1}
"""


def sweep_with(configuration: str, patterns: str = "randread, randwrite", top: str = "") -> Sweep:
    text = f"schema_version: 1\nname: s\n{top}configurations:\n  B: {configuration}\n"
    return parse_sweep(text + MEASUREMENT % patterns, file="s.yaml")


def test_a_replaced_option_is_named_with_its_release_and_the_new_name() -> None:
    sweep = sweep_with("{ceph: {osd: {osd_mclock_cost_per_io_usec_hdd: 20000}}}")
    (found,) = lacking_settings(sweep, releases_called(()))
    assert (found.configuration, found.versions) == ("B", ("18.2.7", "20.2.4"))
    assert "Ceph 20.2.4 has no option osd_mclock_cost_per_io_usec_hdd" in found.why
    assert "was removed after Pacific (16.2)" in found.why
    assert (
        "instead it has osd_mclock_max_sequential_bandwidth_hdd, whose values may have another unit" in found.why
    )
    with pytest.raises(InputError, match=r"Ceph 18\.2\.7 has no option") as caught:
        require_settings(sweep, releases_called(["reef"]))
    assert caught.value.where == "sweep s, line 4, configuration B"
    require_settings(sweep, releases_called(["pacific"]))


def test_an_option_that_came_later_is_missing_on_the_older_releases_only() -> None:
    (found,) = lacking_settings(sweep_with("{ceph: {osd: {bluestore_write_v2: true}}}"), releases_called(()))
    assert found.versions == ("16.2.15", "18.2.7")
    assert "came after Reef (18.2)" in found.why


def test_a_replacement_is_named_only_where_the_release_has_it() -> None:
    """Reef alone lacks bdev_async_discard: Tentacle has it again."""
    (found,) = lacking_settings(sweep_with("{ceph: {osd: {bdev_async_discard: true}}}"), releases_called(()))
    assert found.versions == ("18.2.7",)
    assert "instead it has bdev_async_discard_threads" in found.why


def test_filestore_is_refused_in_words_since_reef() -> None:
    sweep = sweep_with("{ceph: {osd: {filestore_op_threads: 4}}, greater: {osd_store: {filesystem: xfs}}}")
    found = {one.key: one for one in lacking_settings(sweep, releases_called(()))}
    assert found["filesystem"].versions == found["filestore_op_threads"].versions == ("18.2.7", "20.2.4")
    assert found["filesystem"].why == "Ceph 20.2.4 has no FileStore: Reef (18.2) removed it"
    assert found["filestore_op_threads"].why.endswith("so no OSD reads filestore_op_threads")


def test_cache_tiers_are_noted_as_deprecated_since_reef() -> None:
    sweep = sweep_with("{pool: {cache: {mode: writeback, target_max_bytes: 1G}}}")
    assert release_notes(sweep, "16.2.15") == ()
    (note,) = release_notes(sweep, "18.2.7")
    assert "deprecated since Reef" in note
    assert release_notes(sweep_with("{pool: {pg_num: 64}}"), "18.2.7") == ()


@dataclass(frozen=True)
class OfRelease:
    """The only part of a target that is asked: the catalogue of its release."""

    release: str

    def catalogue(self) -> SimpleNamespace:
        return SimpleNamespace(version=lambda: self.release)


@pytest.mark.parametrize(("version", "n_notes"), [("16.2.15", 0), ("18.2.7", 1)])
def test_the_plan_for_a_cluster_has_the_notes_on_its_own_release(version: str, n_notes: int) -> None:
    sweep = sweep_with("{pool: {cache: {mode: writeback, target_max_bytes: 1G}}}")
    document = releases_document(sweep, (), cast(Target, OfRelease(version)))
    assert document is not None
    assert [note.partition(":")[0] for note in document["notes"]] == [f"Ceph {version}"] * n_notes


def test_keys_of_pools_that_came_with_a_release_are_missing_before() -> None:
    sweep = sweep_with(
        "{pool: {allow_ec_optimizations: true, erasure: {k: 2, m: 1}}}", top="accept_risk: [erasure.m]\n"
    )
    (found,) = lacking_settings(sweep, releases_called(()))
    assert found.versions == ("16.2.15", "18.2.7")
    assert found.why == "pools of Ceph 18.2.7 have no allow_ec_optimizations: it came with Tentacle (20.2)"


def test_a_typing_error_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="no known release of Ceph has an option osd_op_queu") as caught:
        lacking_settings(sweep_with("{ceph: {osd: {osd_op_queu: wpq}}}"), releases_called(()))
    assert caught.value.remedy == "did you mean osd_op_queue?"
    assert caught.value.where == "sweep s, line 4, configuration B"


def test_a_sweep_that_omits_gone_options_is_not_refused() -> None:
    text = "{ceph: {osd: {osd_mclock_cost_per_io_usec_hdd: 20000, osd_op_queue: wpq}}}"
    require_settings(sweep_with(text, top="gone_options: leave-out\n"), releases_called(["reef"]))


def test_a_value_that_an_option_does_not_accept_is_named() -> None:
    """Ceph reads 1G of a number that is not a size as 10^9, which is below the minimum of 2^30."""
    sweep = sweep_with("{ceph: {client: {rbd_persistent_cache_size: 1G}}}")
    (found,) = lacking_settings(sweep, releases_called(()))
    assert found.why == "on Ceph 20.2.4, rbd_persistent_cache_size must be at least 1073741824, not 1G"


@pytest.mark.parametrize("name", list(bundled_sweeps()))
def test_the_newest_release_takes_every_ready_sweep_but_those_of_filestore_and_2015(name: str) -> None:
    lacking = lacking_settings(read_sweep(bundled_sweep(name)), releases_called(["tentacle"]))
    old = {"meyer2017", "meyer2017-filestore", "literature", "case-filesystems"}
    assert (name in old) == bool(lacking), lacking


def test_unset_options_are_listed_with_the_value_of_each_release() -> None:
    found = {
        one.default.name: one for one in unset_defaults(sweep_with("{pool: {pg_num: 64}}"), releases_called(()))
    }
    assert found["osd_op_queue"].default.values == ("wpq", "mclock_scheduler", "mclock_scheduler")
    assert found["osd_op_num_shards_hdd"].default.values == ("5", "1", "1")
    assert found["ms_tcp_prefetch_max_size"].default.values == ("4096", "4096", "65536")
    assert found["bluestore_allocation_from_file"].default.values == (None, "true", "true")
    assert not {"osd_max_scrubs", "osd_class_dir", "mon_cluster_log_level"} & found.keys()
    assert "osd_ec_partial_reads" not in found, "no configuration has an erasure code"


def test_an_option_that_one_configuration_sets_is_still_unset_on_the_default() -> None:
    sweep = sweep_with("{ceph: {osd: {osd_op_queue: wpq}}}")
    assert {one.default.name: one.set_by for one in unset_defaults(sweep, releases_called(()))}[
        "osd_op_queue"
    ] == ("B",)


def test_defaults_count_only_for_what_the_sweep_measures() -> None:
    def names(configuration: str, patterns: str) -> set[str]:
        sweep = sweep_with(configuration, patterns, "accept_risk: [erasure.m]\n")
        return {one.default.name for one in unset_defaults(sweep, releases_called(()))}

    assert "bluestore_rocksdb_options" in names("{pool: {pg_num: 64}}", "randwrite")
    assert "bluestore_rocksdb_options" not in names("{pool: {pg_num: 64}}", "randread")
    assert "osd_ec_partial_reads" in names("{pool: {erasure: {k: 2, m: 1}}}", "randread")
    compressed = names("{pool: {compression_mode: aggressive}}", "randwrite")
    assert "bluestore_compression_min_blob_size_ssd" in compressed


def test_a_long_default_is_shown_by_the_parts_that_differ() -> None:
    (found,) = (d for d in differing_defaults(releases_called(())) if d.name == "bluestore_rocksdb_options")
    pacific, reef, tentacle = found.shown
    assert "compression=kNoCompression" in pacific and "compression=kLZ4Compression" in reef
    assert reef == tentacle
    common = "max_total_wal_size=1073741824"
    assert all(value is not None and common in value for value in found.values)
    assert all(common not in shown for shown in found.shown)


def planned(folder: Path, configuration: str, *arguments: str) -> str:
    file = folder / "s.yaml"
    file.write_text(sweep_with(configuration).text)
    result = CliRunner().invoke(sweep_command, ["plan", str(file), *arguments], catch_exceptions=False)
    return result.output


def test_the_plan_prints_and_gives_them_as_json(tmp_path: Path) -> None:
    text = planned(tmp_path, "{ceph: {osd: {osd_mclock_cost_per_io_usec_hdd: 20000}}}")
    assert "Settings that some releases lack" in text
    assert "osd_mclock_max_sequential_bandwidth_hdd, whose values" in text
    assert "Defaults of releases that differ" in text
    document = json.loads(planned(tmp_path, "{ceph: {osd: {osd_op_queue: wpq}}}", "--json"))["on_releases"]
    assert (document["releases"], document["lacking"]) == (["16.2.15", "18.2.7", "20.2.4"], [])
    queue = next(one for one in document["defaults"] if one["option"] == "osd_op_queue")
    assert queue["values"]["18.2.7"] == "mclock_scheduler" and queue["set_by"] == ["B"]


def test_the_plan_for_one_release_refuses_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Ceph 16\.2\.15 has no option bluestore_write_v2"):
        planned(tmp_path, "{ceph: {osd: {bluestore_write_v2: true}}}", "--release", "pacific")
    assert "use either --target or --release" in planned(
        tmp_path, "{pool: {pg_num: 64}}", "--release", "reef", "--target", "sim"
    )
    assert (
        json.loads(planned(tmp_path, "{pool: {pg_num: 64}}", "--target", "sim", "--json"))["on_releases"] is None
    )
