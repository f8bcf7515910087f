"""Options in the text of a ceph.conf: every other byte untouched, and read by Ceph as they were meant."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest
from conf_examples import SITE, ceph
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cephfit.ceph.admin.daemons import Daemon
from cephfit.ceph.delivery.conf_files import (
    TornBlockError,
    effective,
    merged,
    sections_for,
    sections_of,
    text_without_block,
    with_block,
    without_block,
)
from cephfit.core.errors import InputError

SAMPLE = Path("/usr/share/doc/ceph/sample.ceph.conf.gz")
CEPH_CONF = shutil.which("ceph-conf")
needs_ceph_conf = pytest.mark.skipif(CEPH_CONF is None, reason="needs ceph-conf (Debian: ceph-common)")

OSDS = (
    Daemon("osd", "0", "hdd", {"host": "a", "root": "default"}),
    Daemon("osd", "1", "ssd", {"host": "a", "root": "default"}),
)
BOTH = (*OSDS, Daemon("mon", "a"))


def asked(content: bytes, name: str, key: str, folder: Path) -> str:
    """Return the value that Ceph's program reads from a file; empty without one."""
    assert CEPH_CONF is not None
    file = folder / "asked.conf"
    file.write_bytes(content)
    argv = [CEPH_CONF, "-c", str(file), "--name", name, "--lookup", key]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "parse" not in done.stderr, done.stderr
    return done.stdout.removesuffix("\n")


section_names = st.sampled_from(["global", "osd", "mon", "client", "osd.0", "osd.1", "osd.12"])
option_names = st.sampled_from(["log_file", "pid_file", "crash_dir"])
"""Texts to Ceph, which takes any value of them."""
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1).map(str.strip)
sections = st.dictionaries(
    section_names,
    st.dictionaries(option_names, values.filter(lambda v: v and not v.endswith("\\")), min_size=1),
    min_size=1,
)
other_files = st.binary().filter(lambda content: b"cephfit" not in content)


@settings(max_examples=50, deadline=None)
@given(other_files, sections, sections)
@example(b"[osd]\nosd max backfills = 1", {"osd": {"log_file": "a"}}, {"osd": {"log_file": "b"}})
@example(b"[osd]\nlog file = a\\", {"osd": {"log_file": "a"}}, {"osd": {"log_file": "b"}})
@example(b"\xff\xfe\r\n\r\n", {"osd": {"log_file": "a"}}, {"osd": {"log_file": "b"}})
def test_every_other_byte_stays_and_taking_our_lines_out_gives_the_file_back(
    original: bytes, ours: dict[str, dict[str, str]], others: dict[str, dict[str, str]]
) -> None:
    first = with_block(original, ours, configuration="B")
    assert first.startswith(original)
    assert without_block(first) == original
    second = with_block(without_block(first), others, configuration="C")
    assert without_block(second) == original
    assert with_block(original, {}, configuration="A") == original


@settings(max_examples=50, deadline=None)
@given(other_files, sections, st.binary(max_size=30).filter(lambda content: b"cephfit" not in content))
def test_what_others_add_below_our_lines_stays(
    original: bytes, ours: dict[str, dict[str, str]], added: bytes
) -> None:
    assert without_block(with_block(original, ours, configuration="B") + added) == original + added


@settings(max_examples=50, deadline=None)
@given(sections)
def test_our_reader_reads_what_our_writer_writes(ours: dict[str, dict[str, str]]) -> None:
    assert sections_of(with_block(SITE, ours, configuration="B")) == merged(sections_of(SITE), ours)


@needs_ceph_conf
@settings(max_examples=6, deadline=None)
@given(ours=sections)
@example(ours={"osd": {"log_file": "a # b ; c \\ d \" e ' f"}, "osd.1": {"log_file": "'quoted'"}})
def test_ceph_reads_what_was_meant(
    tmp_path_factory: pytest.TempPathFactory, ours: dict[str, dict[str, str]]
) -> None:
    assume("$" not in str(ours))  # a variable, which Ceph replaces
    folder = tmp_path_factory.mktemp("asked")
    content = with_block(SITE, ours, configuration="B")
    for name in ("osd.0", "osd.1"):
        meant = effective(sections_of(content), ("global", "osd", name))
        for key in {key for options in ours.values() for key in options if key in meant}:
            assert asked(content, name, key, folder) == meant[key]


@needs_ceph_conf
def test_our_setting_wins_over_every_line_of_the_file(tmp_path: Path) -> None:
    wanted = (
        ceph("osd", "osd_max_backfills", 7),  # osd.1 has a section of its own with it
        ceph("osd/class:hdd", "osd_recovery_max_active", 9),  # such files know no masks
        ceph("global", "osd_pool_default_size", 2),
    )
    ours = sections_for(wanted, BOTH, sections_of(SITE))
    assert ours == {
        "global": {"osd_pool_default_size": "2"},
        "osd": {"osd_max_backfills": "7"},
        "osd.0": {"osd_recovery_max_active": "9"},
        "osd.1": {"osd_max_backfills": "7"},
    }
    content = with_block(SITE, ours, configuration="B")
    read = {
        (name, key): asked(content, name, key, tmp_path)
        for name in ("osd.0", "osd.1")
        for key in ("osd_max_backfills", "osd_recovery_max_active", "osd_pool_default_size")
    }
    assert read == {
        ("osd.0", "osd_max_backfills"): "7",
        ("osd.1", "osd_max_backfills"): "7",
        ("osd.0", "osd_recovery_max_active"): "9",
        ("osd.1", "osd_recovery_max_active"): "4",
        ("osd.0", "osd_pool_default_size"): "2",
        ("osd.1", "osd_pool_default_size"): "2",
    }


@needs_ceph_conf
@pytest.mark.skipif(not SAMPLE.exists(), reason="Debian's ceph package has the sample")
def test_the_sample_that_comes_with_ceph(tmp_path: Path) -> None:
    sample = gzip.decompress(SAMPLE.read_bytes())
    for name, options in sections_of(sample).items():
        for key, value in options.items():
            if "." in name and "$" not in value:
                assert asked(sample, name, key, tmp_path) == value
    content = with_block(sample, {"osd": {"osd_max_backfills": "7"}}, configuration="B")
    assert asked(content, "osd.0", "osd_max_backfills", tmp_path) == "7"
    assert without_block(content) == sample


@pytest.mark.parametrize("value", ["a\n[global]\nfsid = 0", "a\\", "größer", "a\x00b"])
def test_what_could_break_the_file_is_refused(value: str) -> None:
    with pytest.raises(InputError, match=r"is not safe in a ceph\.conf"):
        with_block(SITE, {"osd": {"log_file": value}}, configuration="B")


def test_a_file_that_is_no_text_or_has_torn_lines_of_ours_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ceph.conf"
    file.write_bytes(b"[global]\n# Gr\xfc\xdfe\n")
    with pytest.raises(InputError, match="byte 13 is not UTF-8") as error:
        text_without_block(file)
    assert error.value.where == str(file)
    file.write_bytes(with_block(SITE, {"osd": {"osd_max_backfills": "3"}}, configuration="B")[:-20])
    with pytest.raises(InputError, match="their end is unclear"):
        text_without_block(file)


def test_the_name_of_a_configuration_breaks_nothing_either() -> None:
    content = with_block(SITE, {"osd": {"log_file": "a"}}, configuration="größer\n[global]")
    assert content.isascii()
    assert sections_of(content) == merged(sections_of(SITE), {"osd": {"log_file": "a"}})


def test_our_lines_half_edited_away_are_not_guessed_at() -> None:
    content = with_block(SITE, {"osd": {"log_file": "a"}}, configuration="B")
    with pytest.raises(TornBlockError):
        without_block(content[: content.index(b"# <<< cephfit")])
