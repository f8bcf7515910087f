"""Options: their tree, their history over releases, the values they take, and the archive."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thesis_tables import thesis_table

from cephfit.ceph.options import option_archive
from cephfit.ceph.options.option import Option, fault_of
from cephfit.ceph.options.option_archive import KnownOptions
from cephfit.ceph.options.option_catalogue import COMPONENTS, found_by, tree_of
from cephfit.ceph.options.option_history import RELEASES, history_of, is_gone
from cephfit.core.errors import InputError


def option(name: str, type: str = "uint", default: object = 1, **more: object) -> Option:
    fields = {"flags": (), "services": (), "can_update_at_runtime": True, **more}
    return Option(name, type, default, **fields)  # type: ignore[arg-type]


def test_an_option_stands_under_its_component_and_category():
    names = ["osd_recovery_sleep", "osd_recovery_priority", "osd_uuid", "bluefs_alloc_size", "mgr/balancer/active"]
    places = {p.option.name: (p.component, p.category) for p in tree_of(map(option, names))}
    assert places == {
        "osd_recovery_sleep": ("osd", "recovery"),
        "osd_recovery_priority": ("osd", "recovery"),
        "osd_uuid": ("osd", "general"),
        "bluefs_alloc_size": ("bluestore", "general"),
        "mgr/balancer/active": ("manager", "general"),
    }


@given(st.sets(st.from_regex(r"(osd|mon|rgw|rbd|bluestore|zz)(_[a-z]{1,6}){0,3}", fullmatch=True), max_size=30))
def test_the_tree_loses_no_option_and_invents_none(names: set[str]):
    parameters = tree_of(option(name) for name in names)
    assert {p.option.name for p in parameters} == names
    assert len(parameters) == len(names)
    assert all(p.component in COMPONENTS for p in parameters)


def test_tags_say_what_to_know_before_one_touches_it():
    tags = {
        p.option.name: p.tags
        for p in tree_of(
            [
                option("osd_max_backfills", flags=("runtime",)),
                option("osd_op_num_shards", flags=("startup",)),
                option("bluestore_min_alloc_size", flags=("create",)),
                option("osd_debug_drop_op_probability"),
            ]
        )
    }
    assert tags == {
        "osd_max_backfills": ("recovery",),
        "osd_op_num_shards": ("restart",),
        "bluestore_min_alloc_size": ("creation",),
        "osd_debug_drop_op_probability": ("restart", "risk"),
    }


def test_a_search_shows_names_before_descriptions():
    tree = tree_of([option("mon_x", description="how long recovery may sleep"), option("osd_recovery_sleep")])
    assert [p.option.name for p in found_by(tree, ["recovery", "sleep"])] == ["osd_recovery_sleep", "mon_x"]
    assert found_by(tree, ["recovery", "nothing"]) == ()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("osd_op_threads", "was removed after Jewel (10.2); Luminous (12.2) does not have it; client operations"),
        ("osd_disk_threads", "was removed after Luminous (12.2); Mimic (13.2) does not have it; scrubbing"),
        ("journal_queue_max_ops", "was removed after Giant (0.87); Jewel (10.2) does not have it; FileStore's"),
        ("filestore_op_threads", "is in every release from Dumpling (0.67) to Tentacle (20.2)"),
        ("osd_mclock_profile", "came after Octopus (15.2), with Pacific (16.2) or before"),
    ],
)
def test_the_history_names_the_release_and_what_replaced_an_option(name: str, sentence: str):
    history = history_of(name)
    assert history is not None
    assert history.sentence.startswith(sentence)


def test_every_option_of_the_thesis_has_a_history():
    tables = ("meyer_configurations.csv", "meyer_literature_configurations.csv")
    names = {row["parameter"] for table in tables for row in thesis_table(table)} - {"", "debugging"}
    assert len(names) == 21
    assert [name for name in sorted(names) if history_of(name) is None] == []
    assert {name for name in names if is_gone(name)} == {
        "osd_op_threads", "osd_disk_threads", "filestore_queue_committing_max_bytes",
        "journal_queue_max_bytes", "journal_queue_max_ops",
    }  # fmt: skip


def test_an_option_without_a_release_has_no_history():
    assert history_of("osd_op_treads") is None
    assert next(iter(RELEASES)) == "dumpling"
    assert list(RELEASES)[-1] == "tentacle"


@pytest.mark.parametrize(
    ("value", "of", "fault"),
    [
        (5, option("a", least="1", most="10"), ""),
        (11, option("a", least="1", most="10"), "must be at most 10"),
        (0, option("a", least="1", most="10"), "must be at least 1"),
        (-3, option("a"), "must be a whole number from 0 up"),
        ("512K", option("a", type="size", default="1M"), ""),
        ("512Q", option("a", type="size", default="1M"), "must be a size, such as 512K"),
        ("maybe", option("a", type="bool", default=True), "must be true or false"),
        (True, option("a", type="bool", default=False), ""),
        ("snappy", option("a", type="str", default="lz4", choices=("lz4", "snappy")), ""),
        ("zip", option("a", type="str", default="lz4", choices=("lz4", "snappy")), "must be one of lz4, snappy"),
        (0.5, option("a", type="int", default=3), "must be a whole number"),
        # A limit that the default itself breaks is a mistake in Ceph's own description.
        (3, option("a", default=5, least="18446744073709551606"), ""),
    ],
)
def test_a_value_is_judged_by_the_options_own_type_range_and_words(value: object, of: Option, fault: str):
    assert fault_of(value, of) == fault  # type: ignore[arg-type]


def test_a_clusters_answers_are_kept_per_version(tmp_path: Path):
    options = (option("osd_a", choices=("x", "y"), see_also=("osd_b",)), option("osd_b", default=None))
    option_archive.keep("16.2.15", options, folder=tmp_path)
    assert option_archive.known("16.2", folder=tmp_path) == KnownOptions(
        "16.2.15", options, "kept on this machine"
    )
    assert option_archive.kept_versions(folder=tmp_path) == ("16.2.15",)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["16.2.15.json"]


def test_an_archive_with_several_versions_lists_them(tmp_path: Path):
    option_archive.keep("16.2.15", (), folder=tmp_path)
    option_archive.keep("16.2.9", (), folder=tmp_path)
    with pytest.raises(InputError, match="more than one version 16 ") as several:
        option_archive.known("16", folder=tmp_path)
    assert "choose one of 16.2.9, 16.2.15" in str(several.value)


def test_a_release_that_is_not_known_ends_with_those_that_are(tmp_path: Path):
    option_archive.keep("16.2.9", (), folder=tmp_path)
    with pytest.raises(InputError, match="options of Ceph 19 are unknown here") as unknown:
        option_archive.known("19", folder=tmp_path)
    assert "known are 16.2.9, 16.2.15, 18.2.7, 20.2.4" in str(unknown.value)


@pytest.mark.parametrize("version", ["16.2", "18", "20.2", "reef", "Pacific", "tentacle"])
def test_releases_come_with_cephfit(version: str, tmp_path: Path):
    known = option_archive.known(version, folder=tmp_path)
    assert known.source == "comes with cephfit"
    by_name = {one.name: one for one in known.options}
    assert len(by_name) == len(known.options) > 2000
    assert by_name["osd_memory_target"].type == "size"
    assert by_name["bluestore_csum_type"].choices[:2] == ("none", "crc32c")
    assert "mgr/balancer/active" in by_name  # a manager's module
    assert "debug_osd" in by_name  # a level of logging, which Ceph's own list lacks


def test_what_changed_between_releases_is_seen_in_the_options_that_come_with_cephfit(tmp_path: Path):
    defaults = {
        version: {one.name: one.default for one in option_archive.known(version, folder=tmp_path).options}
        for version in ("16.2", "18.2")
    }
    assert [defaults[version]["osd_op_queue"] for version in ("16.2", "18.2")] == ["wpq", "mclock_scheduler"]


def test_the_archive_takes_precedence_over_bundled_options(tmp_path: Path):
    option_archive.keep("16.2.15", (option("osd_a"),), folder=tmp_path)
    assert option_archive.known("16.2.15", folder=tmp_path).source == "kept on this machine"
    assert option_archive.known_versions(folder=tmp_path) == {
        "16.2.15": "kept on this machine",
        "18.2.7": "comes with cephfit",
        "20.2.4": "comes with cephfit",
    }


def test_a_damaged_archive_is_named(tmp_path: Path):
    path = option_archive.keep("16.2.15", (option("osd_a"),), folder=tmp_path)
    path.write_text(json.dumps({"schema_version": 1, "options": [{"name": "osd_a"}]}))
    with pytest.raises(InputError, match="damaged") as damaged:
        option_archive.known("16.2.15", folder=tmp_path)
    assert str(path) in str(damaged.value)
