"""Options from the configuration file and the environment."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cephfit.cli.cluster.restore_command import restoring
from cephfit.cli.main import cephfit
from cephfit.cli.options.common_options import cluster_options
from cephfit.cli.options.config_file import OPTIONS, read_config
from cephfit.core.errors import InputError
from cephfit.operations.measuring.cluster_options import ClusterOptions

FILE = """
store: results/all.sqlite
id: cephfit
keyring: cephfit.keyring
restarts: cephadm
ssh-host:
  osd-1: 192.0.2.7
targets:
  ceph:prod:
    conf: /etc/ceph/prod.conf
    pg-num: 64
  ceph:test:
    id: admin
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default file of a user, and no variables."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("CONFIG", "STORE", *(one.upper().replace("-", "_") for one in OPTIONS)):
        monkeypatch.delenv(f"CEPHFIT_{name}", raising=False)
    path = tmp_path / "cephfit" / "config.yaml"
    path.parent.mkdir()
    path.write_text(FILE)
    return path


def shown(*arguments: str, before: tuple[str, ...] = ()) -> dict[str, tuple[str, str]]:
    """Option to (value, where it comes from)."""
    done = CliRunner().invoke(cephfit, [*before, "config", "show", *arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return {name: (one["value"], one["from"]) for name, one in json.loads(done.output)["options"].items()}


def chosen(target: str, *arguments: str) -> ClusterOptions:
    """The cluster options that a command receives for one target."""

    @click.command()
    @click.option("--target", "target_text")
    @cluster_options
    def command(target_text: str, cluster: ClusterOptions) -> ClusterOptions:
        return cluster.for_target(target_text)

    done: Any = command.main(["--target", target, *arguments], standalone_mode=False)
    assert isinstance(done, ClusterOptions)
    return done


def test_the_command_line_overrides_the_environment_which_overrides_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown()["id"] == ("cephfit", f"{config}:3")
    monkeypatch.setenv("CEPHFIT_ID", "ops")
    assert shown()["id"] == ("ops", "$CEPHFIT_ID")
    assert shown("--id", "me")["id"] == ("me", "command line")
    assert chosen("ceph:prod", "--id", "me").client_id == "me"
    assert chosen("ceph:prod").client_id == "ops"


def test_a_section_of_the_target_overrides_values_for_all(config: Path) -> None:
    assert chosen("ceph:prod") == ClusterOptions(
        conf=Path("/etc/ceph/prod.conf"),
        client_id="cephfit",
        keyring=config.parent / "cephfit.keyring",
        restarts="cephadm",
        ssh_hosts=("osd-1=192.0.2.7",),
        pg_num=64,
    )
    assert chosen("ceph:test,settings=conf").client_id == "admin"
    assert chosen("ceph:test").pg_num is None
    assert shown("--target", "ceph:test")["id"] == ("admin", f"{config}:13")


def test_the_environment_overrides_a_section_of_the_target(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHFIT_PG_NUM", "32")
    monkeypatch.setenv("CEPHFIT_SSH", "yes")
    assert (chosen("ceph:prod").pg_num, chosen("ceph:prod").ssh) == (32, True)


@pytest.mark.parametrize("target", ["sim", "lab", "lab:big", "local:/tmp/x"])
def test_cluster_options_in_the_file_do_not_affect_other_targets(config: Path, target: str) -> None:
    assert chosen(target) == ClusterOptions()
    assert chosen(target, "--pg-num", "8") == ClusterOptions(pg_num=8)  # which is then refused


def test_a_command_on_a_simulation_works_with_such_a_file(config: Path) -> None:
    done = CliRunner().invoke(cephfit, ["restore", "--target", "sim"], catch_exceptions=False)
    assert done.exit_code == 0


def test_only_pool_on_the_command_line_ignores_presets_that_it_does_not_allow(config: Path) -> None:
    within = chosen("ceph:prod", "--only-pool", "bench")
    assert (within.only_pool, within.restarts, within.pg_num) == ("bench", None, None)


def test_commands_that_do_not_support_only_pool_refuse_it(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["pools", "remove", "pools.yaml", "--target", "ceph:prod", "--apply"]
    config.write_text("only-pool: bench")
    assert f"{config}:1: only-pool allows nothing but" in str(CliRunner().invoke(cephfit, words).exception)
    config.write_text("")
    monkeypatch.setenv("CEPHFIT_ONLY_POOL", "bench")
    assert "$CEPHFIT_ONLY_POOL: only-pool" in str(CliRunner().invoke(cephfit, words).exception)


def test_the_restore_command_includes_options_of_the_file(config: Path) -> None:
    @click.command()
    @cluster_options
    def command(cluster: ClusterOptions) -> str:
        return restoring("ceph:prod", cluster)

    assert "--conf /etc/ceph/prod.conf --id cephfit" in command.main([], standalone_mode=False)


def test_the_store_comes_from_the_file_the_environment_or_the_command_line(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown()["store"] == (str(config.parent / "results/all.sqlite"), f"{config}:2")
    missing = CliRunner().invoke(cephfit, ["sweep", "status"])
    assert str(config.parent / "results/all.sqlite") in str(missing.exception)
    monkeypatch.setenv("CEPHFIT_STORE", "other.sqlite")
    assert shown()["store"] == ("other.sqlite", "$CEPHFIT_STORE")
    assert shown("--store", "third.sqlite")["store"] == ("third.sqlite", "command line")


def test_which_file_it_is(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_variable, by_option = tmp_path / "a.yaml", tmp_path / "b.yaml"
    by_variable.write_text("id: a")
    by_option.write_text("id: b")
    monkeypatch.setenv("CEPHFIT_CONFIG", str(by_variable))
    assert shown()["id"] == ("a", f"{by_variable}:1")
    assert shown(before=("--config", str(by_option)))["id"] == ("b", f"{by_option}:1")
    assert shown(before=("--config", "/dev/null"))["id"] == ("", "default")
    refused = CliRunner().invoke(cephfit, ["--config", str(tmp_path / "none.yaml"), "sweep", "list"])
    assert "none.yaml: this configuration file does not exist" in str(refused.exception)


def test_without_a_file_there_are_the_defaults(config: Path) -> None:
    config.unlink()
    assert {origin for _, origin in shown().values()} == {"default"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id: a\nkeyrin: b", "config.yaml:2: unknown word 'keyrin' in the file\n  did you mean 'keyring'?"),
        ("only_pool: b", "config.yaml:1: unknown word 'only_pool' in the file\n  did you mean 'only-pool'?"),
        ("take-over: true", "config.yaml:1: unknown word 'take-over'"),
        ("apply: true", "config.yaml:1: unknown word 'apply'"),
        ("pg-num: many", "config.yaml:1: pg-num must be a whole number"),
        ("pg-num: 0", "config.yaml:1: pg-num must be at least 1"),
        ("ssh: 1", "config.yaml:1: ssh must be true or false"),
        ("\nadmin: rado", "config.yaml:2: admin cannot be 'rado'\n  choose from: rados, ceph, rest"),
        ("conf: [a]", "config.yaml:1: conf must be text, not a list"),
        ("ssh-host: a=b", "config.yaml:1: ssh-host must be a mapping"),
        ("targets:\n  sim:\n    id: a", "config.yaml:3: 'sim' is not a cluster"),
        ("targets:\n  ceph:\n    store: a", "config.yaml:3: unknown word 'store' in targets.ceph"),
        ("id: a\nid: b", "config.yaml:2: 'id' is given twice"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_with_its_line(config: Path, text: str, words: str) -> None:
    config.write_text(text)
    with pytest.raises(InputError) as refused:
        read_config(config)
    assert words in str(refused.value)


@pytest.mark.parametrize("line", ["store: postgresql://me:secret@db/x", "rest-url: http://me:secret@mon1:5000/"])
def test_a_file_with_a_password_must_be_readable_only_by_its_owner(config: Path, line: str) -> None:
    config.write_text(line)
    config.chmod(0o644)
    with pytest.raises(InputError, match="holds a password, and other users may read this file") as refused:
        read_config(config)
    assert re.search(f"chmod 600 {config}", str(refused.value))
    config.chmod(0o600)
    assert "secret" not in str(shown())


def test_a_variable_of_the_wrong_type_is_named(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHFIT_PG_NUM", "many")
    refused = CliRunner().invoke(cephfit, ["config", "show"])
    assert refused.exit_code == 2
    assert "CEPHFIT_PG_NUM" in refused.output
