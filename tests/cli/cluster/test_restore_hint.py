"""The restore command that is printed after Ctrl-C can be run unchanged."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cephfit.cli.main import cephfit
from cephfit.cli.sweep import sweep_text
from cephfit.core.errors import ClusterError
from cephfit.operations.measuring import target_choice

SPACED = "/tmp/my keys/cephfit.keyring"
OPTIONS = (
    *("--conf", "/etc/ceph/ceph.conf", "--id", "cephfit", "--keyring", SPACED, "--admin", "ceph"),
    *("--ssh", "--ssh-host", "a=10.0.0.1", "--ssh-host", "b=10.0.0.2", "--restarts", "cephadm", "--pg-num", "16"),
)


def interrupted(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[list[str]]:
    """The restore commands that an interrupted sweep prints."""

    def measure(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_text, "measure", measure)
    done = CliRunner().invoke(cephfit, ["sweep", "run", "quick", *words])
    return [shlex.split(said) for said in re.findall(r"`(cephfit restore .*?)`", done.output)]


def test_the_command_has_the_connection_options_of_the_sweep_and_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--target", "ceph:prod,settings=conf", *OPTIONS, "--take-over", "--apply")
    (command,) = interrupted(monkeypatch, *words)
    asked: list[Any] = []

    def open_target(text: str, **how: Any) -> None:
        asked.append((text, how["for_change"], how["leave"], how["cluster"]))
        raise ClusterError("not here")

    monkeypatch.setattr(target_choice, "open_target", open_target)
    done = CliRunner().invoke(cephfit, command[1:])
    assert isinstance(done.exception, ClusterError), done.output
    ((text, for_change, leave, cluster),) = asked
    assert (text, for_change, leave) == ("ceph:prod,settings=conf", True, True)
    assert (cluster.conf, cluster.client_id) == (Path("/etc/ceph/ceph.conf"), "cephfit")
    assert (str(cluster.keyring), cluster.admin, cluster.restarts) == (SPACED, "ceph", "cephadm")
    assert (cluster.ssh, cluster.ssh_hosts, cluster.pg_num) == (True, ("a=10.0.0.1", "b=10.0.0.2"), 16)
    assert not cluster.take_over, "the sweep holds the lock since then"


def test_targets_created_by_cephfit_need_only_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = interrupted(monkeypatch, "--target", "lab:mine")
    assert command == ["cephfit", "restore", "--target", "lab:mine"]
