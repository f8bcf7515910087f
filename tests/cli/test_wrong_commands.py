"""Mistakes of the user are reported with place and remedy."""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cephfit.ceph.admin.fallback_admins import RestAdmin
from cephfit.ceph.cluster_adapters import ClusterAdapters
from cephfit.ceph.crush.data_placement import read_layout
from cephfit.cli import demo
from cephfit.cli.cluster import lab_command
from cephfit.cli.cluster.restore_command import restoring
from cephfit.cli.fleets.pool_options import parse_placement, parse_prices
from cephfit.cli.main import cephfit
from cephfit.cli.output import write_whole, written_whole
from cephfit.cli.reports import report_command
from cephfit.cloud.guests import guest_image, initramfs
from cephfit.core.errors import CephfitError, ClusterError, HostError, InputError
from cephfit.core.journal import Journal
from cephfit.core.profile_files import read_profile
from cephfit.core.values.configuration import Configuration
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.target_choice import open_target
from cephfit.sweep.declaration.file_settings import read_pool_file
from cephfit.sweep.declaration.sweep_file import bundled_sweep, read_sweep
from cephfit.targets.ceph.change_scopes import OnlyPool, WholeCluster
from cephfit.targets.ceph.existing_cluster import restarting_program
from cephfit.targets.simulated import simulated_target


class OnePool:
    """Monitors of a cluster whose only pool is rbd."""

    def command(self, prefix: str, **arguments: Any) -> Any:
        assert prefix == "osd lspools"
        return [{"poolnum": 1, "poolname": "rbd"}]


def test_a_dry_run_in_a_missing_pool_is_refused(tmp_path: Path) -> None:
    """Refused already in the dry run, not only with --apply."""
    changes = OnlyPool("bench", OnePool(), Journal(tmp_path / "journal"), None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no pool bench") as caught:
        changes.preview(read_sweep(bundled_sweep("quick")), [Configuration("A")])
    assert "ceph osd pool create bench" in str(caught.value)


def test_the_facts_of_a_missing_pool_are_refused() -> None:
    """They are read before anything is changed, also by commands without a dry run."""

    class NoPool:
        def command(self, prefix: str, **arguments: Any) -> Any:
            return {"pools": [], "nodes": []} if prefix in ("osd dump", "osd tree") else []

    with pytest.raises(InputError, match="no pool bench"):
        read_layout(NoPool(), {}, "bench")  # type: ignore[arg-type]


def test_a_dry_run_with_a_missing_crush_rule_is_refused(tmp_path: Path) -> None:
    class OneRule:
        def command(self, prefix: str, **arguments: Any) -> Any:
            return ["replicated_rule"] if prefix == "osd crush rule ls" else []

    nothing: Any = None
    admin: Any = OneRule()
    around = ClusterAdapters(nothing, pool_defaults={"crush_rule": "sdd"})
    journal = Journal(tmp_path / "journal")
    changes = WholeCluster(
        admin, nothing, journal, volumes=nothing, health=nothing, adapters=around, progress=nothing
    )
    with pytest.raises(InputError, match="--crush-rule: this cluster has no CRUSH rule sdd") as caught:
        changes.preview(read_sweep(bundled_sweep("quick")), [Configuration("A")])
    assert "there are replicated_rule" in str(caught.value)


@pytest.mark.parametrize("what", ["missing", "folder", "plain file"])
def test_a_program_that_cannot_restart_osds_is_refused_in_preflight(tmp_path: Path, what: str) -> None:
    program = tmp_path / "restart-osd"
    if what == "folder":
        program.mkdir()
    elif what == "plain file":
        program.write_text("#!/bin/sh\n")
    with pytest.raises(InputError, match="not an executable file") as caught:
        restarting_program(str(program))
    assert f"--restarts {program}" in str(caught.value)


def test_place_names_the_existing_configurations() -> None:
    with pytest.raises(InputError, match="no configuration 'Z' with a pool") as caught:
        parse_placement("Z=hdd:2", {"A", "ssd"})
    assert "there are A, ssd" in str(caught.value)


def test_an_image_goes_to_no_folder_below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initramfs, "require_all", lambda: None)  # the programs are not tested here
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="the folder cannot be created"):
        guest_image.build(tmp_path / "file" / "image")


def commands(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands below a group at any depth, with the words that call them."""
    if not isinstance(command, click.Group):
        yield names, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from commands(below, *names, name)


def test_no_option_accepts_nan_or_infinity() -> None:
    options = [
        (" ".join((*names, option.opts[0])), option.type)
        for names, command in commands(cephfit)
        for option in command.params
        if isinstance(option.type, click.types.FloatParamType)
    ]
    assert {"sweep run --health-limit", "trace jobs --seconds"} <= {name for name, _ in options}
    for name, kind in options:
        for word in ("nan", "inf", "-inf", "-1"):
            with pytest.raises(click.BadParameter):
                pytest.fail(f"{name} takes {kind.convert(word, None, None)}")


@pytest.mark.parametrize("placement", ["A=hdd:inf", "A=hdd:nan", "A=hdd:-1"])
def test_the_number_of_copies_is_finite_and_positive(placement: str) -> None:
    with pytest.raises(InputError, match=r"--placement: .* is not CONFIGURATION=CLASS:COPIES"):
        parse_placement(placement, {"A"})


@pytest.mark.parametrize("price", ["ssd", "ssd=-3", "ssd=nan", "=4"])
def test_a_price_is_a_number_from_zero_on(price: str) -> None:
    with pytest.raises(InputError, match=r"--price: .* is not CLASS=NUMBER"):
        parse_prices((price,), {})


def test_a_price_is_of_a_class_with_a_pool() -> None:
    with pytest.raises(InputError, match="no pool is on device class 'sdd'") as caught:
        parse_prices(("sdd=1",), {"A": {"hdd": 2.0}, "fast": {"ssd": 2.0}, "by hand": None})
    assert caught.value.remedy == "there are hdd, ssd"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("sweep", "plan", "quick", "--only-pool", "bench", "--ssh"), r"--only-pool, --ssh: .* --target"),
    ],
)
def test_an_option_without_effect_is_refused(argv: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(cephfit, argv)
    assert done.exit_code == 2
    assert re.search(words, done.output)


def test_a_missing_keyring_is_named_before_connecting(tmp_path: Path) -> None:
    (tmp_path / "ceph.conf").touch()
    options = ClusterOptions(conf=tmp_path / "ceph.conf", client_id="cephfit", keyring=tmp_path / "nokey")
    with pytest.raises(InputError, match="this keyring does not exist") as caught:
        open_target("ceph", for_change=False, cluster=options)
    assert "ceph auth get client.cephfit" in caught.value.remedy


def test_a_folder_is_no_target_and_no_profile(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a folder"):
        open_target(f"local:{tmp_path}", for_change=False)
    (tmp_path / "mine.json").touch()
    with pytest.raises(InputError, match="a folder") as caught:
        read_profile(tmp_path)
    assert "mine.json" in caught.value.remedy


def test_a_file_that_is_too_large_for_a_profile_is_not_read_as_a_whole() -> None:
    with pytest.raises(InputError, match="/dev/zero: this is too large for a profile"):
        read_profile(Path("/dev/zero"))


def test_the_demo_reads_its_sweep_file_before_it_starts_a_ceph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    arguments = ["--sweep", "nosuch", "--folder", str(tmp_path / "results")]
    with pytest.raises(InputError, match="no file 'nosuch'"):
        CliRunner().invoke(demo.command, arguments, catch_exceptions=False)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("arguments", "expected"), [([], []), (["--release", "reef"], ["--release", "reef"])])
def test_the_demo_starts_a_lab_of_the_release_that_is_named(
    arguments: list[str], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that it starts fail here: the demo ends with the first, and removes the lab of a killed one."""
    commands: list[tuple[str, ...]] = []

    def refuse(*command: str) -> None:
        commands.append(command)
        raise CephfitError("no lab in this test")

    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(demo, "_run", refuse)
    with pytest.raises(CephfitError, match="no lab in this test"):
        CliRunner().invoke(
            demo.command, [*arguments, "--folder", str(tmp_path / "results")], catch_exceptions=False
        )
    assert commands[0] == ("lab", "up", "--name", "demo", *expected)


def test_a_lab_that_is_named_by_its_folder_is_not_called_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_there(name: str, *, folder: Path | None) -> None:
        raise InputError(f"there is no lab {name!r}")

    monkeypatch.setattr("cephfit.lab.cluster.Lab.remove", none_there)
    with pytest.raises(InputError, match="nowhere: no lab has this folder"):
        CliRunner().invoke(
            lab_command.command, ["down", "--folder", str(tmp_path / "nowhere")], catch_exceptions=False
        )


def test_a_table_of_csv_is_not_asked_of_a_page(tmp_path: Path) -> None:
    arguments = ["--store", "none", "-o", str(tmp_path / "x.html"), "--what", "baselines"]
    with pytest.raises(InputError, match="--what baselines chooses a CSV table"):
        CliRunner().invoke(report_command.command, arguments, catch_exceptions=False)


def test_a_failed_write_keeps_the_previous_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not destroy an older profile."""
    profile = tmp_path / "profile.json"
    write_whole(profile, "old", what="the profile")

    def no_room(self: Path, text: str, encoding: str) -> int:
        with self.open("w") as file:
            file.write(text[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "write_text", no_room)
    with pytest.raises(HostError, match=r"profile\.json: the profile cannot be written: No space left"):
        write_whole(profile, "new", what="the profile")
    assert [p.name for p in tmp_path.iterdir()] == ["profile.json"]
    assert profile.read_text() == "old"


@pytest.mark.parametrize(
    "arguments",
    [
        ("trace", "profile", "{trace}", "-o", "{there}/p.json"),
        ("trace", "jobs", "{trace}", "-o", "{there}/p.fio"),
        ("trace", "plot", "{trace}", "-o", "{there}/p.svg"),
        ("trace", "convert", "{trace}", "-o", "{there}/p.parquet"),
        ("trace", "convert", "{trace}", "-o", "{there}/p.iolog"),
        ("report", "--store", "{trace}.none", "-o", "{there}/r.html"),
    ],
)
def test_a_missing_folder_is_reported_before_anything_is_read_or_created(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """A folder with a misspelled name must not be created."""
    trace, there = tmp_path / "not read", tmp_path / "mis" / "spelled"
    words = [word.format(trace=trace, there=there) for word in arguments]
    with pytest.raises(InputError, match=f"the folder {there} does not exist"):
        CliRunner().invoke(cephfit, words, catch_exceptions=False)
    assert not any(tmp_path.iterdir())


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    write_whole(Path("/dev/null"), "report", what="the report")
    assert Path("/dev/null").is_char_device()


def test_a_truncated_trace_leaves_no_output(tmp_path: Path) -> None:
    log = tmp_path / "trace.iolog"
    refused = pytest.raises(HostError, match=r"trace\.iolog: the trace cannot be written: No space left")
    with refused, written_whole(log, what="the trace") as place:
        place.write_text("half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not any(tmp_path.iterdir())


def test_missing_or_binary_files_are_reported_with_a_remedy(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for read, begin in ((read_sweep, "`cephfit sweep list`"), (read_pool_file, "`cephfit pools example`")):
        for path in (binary, tmp_path / "missing.yaml"):
            with pytest.raises(InputError) as caught:
                read(path)
            assert caught.value.where == str(path)
            assert caught.value.remedy.startswith(begin)


@pytest.mark.parametrize("word", ["seed", "noise", "pace"])
def test_a_wrong_value_of_a_simulation_is_reported_with_an_example(word: str) -> None:
    with pytest.raises(InputError, match=f"'x' is not a value for {word}") as caught:
        simulated_target(f"sim:{word}=x")
    assert simulated_target(f"sim:{caught.value.remedy.removeprefix('write it like ')}")


def test_the_restore_command_has_no_password() -> None:
    cluster = ClusterOptions(admin="rest", rest_url="http://user:p%40ss@[::1]:5000/api/v0.1/", take_over=True)
    assert restoring("ceph", cluster) == (
        "cephfit restore --target ceph --admin rest --rest-url 'http://[::1]:5000/api/v0.1/' --apply"
    )
    with pytest.raises(ClusterError) as caught:
        RestAdmin("http://user:p%40ss@127.0.0.1:9/api/v0.1", timeout_seconds=5).command("status")
    assert "http://127.0.0.1:9/api/v0.1/" in str(caught.value)
    assert "p%40ss" not in str(caught.value)


def test_a_report_whose_format_is_not_clear_names_the_formats(tmp_path: Path) -> None:
    output = str(tmp_path / "report.pdf")
    with pytest.raises(InputError) as caught:
        cephfit.main(["report", "--store", "none.sqlite", "-o", output], standalone_mode=False)
    assert "cannot infer the format from the file name" in str(caught.value)
    assert "--format with html, md or csv" in str(caught.value)
