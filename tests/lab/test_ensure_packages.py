"""The policy that prevents services from starting during an installation is always removed afterwards."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "lab" / "ensure_packages.sh"

APT_GET = """#!/bin/sh
[ "$1" != update ] || exit 0
cp "$DPKG_ROOT/usr/sbin/policy-rc.d" "$DPKG_ROOT/seen"
{then}
"""


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Mapping[str, str]]:
    """(where the policy file goes, environment): a Debian with nothing installed, whose apt-get does little."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "usr" / "sbin").mkdir(parents=True)
    (tmp_path / "list").write_text("fio  # the benchmark\n")
    for name, text in (("id", "echo 0"), ("dpkg-query", "exit 1")):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "DPKG_ROOT": str(tmp_path)}
    return tmp_path / "usr" / "sbin" / "policy-rc.d", environment


def start(policy: Path, environment: Mapping[str, str], *, then: str) -> subprocess.Popen[bytes]:
    """The script, with what apt-get does once it installs; signals end it, even if they do not end the tests
    (``nohup``)."""
    root = policy.parents[2]
    (root / "bin" / "apt-get").write_text(APT_GET.format(then=then))
    (root / "bin" / "apt-get").chmod(0o755)
    return subprocess.Popen(
        ("env", "--default-signal", "/bin/sh", SCRIPT, root / "list"),
        env=environment,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )


def wait_for(file: Path) -> None:
    until = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("installed", "known", "asked"),
    [
        ("nothing", "libnfs13", "fio libnfs13"),
        ("nothing", "libnfs14", "fio libnfs14"),
        ("libnfs13", "libnfs14", "fio"),
    ],
)
def test_of_alternatives_any_installed_one_will_do_else_the_one_that_debian_has(
    machine: tuple[Path, Mapping[str, str]], installed: str, known: str, asked: str
) -> None:
    policy, environment = machine
    root = policy.parents[2]
    (root / "list").write_text("fio\nlibnfs13|libnfs14  # a library\n")
    programs = {
        "dpkg-query": f'[ "$last" != {installed} ] || printf installed',
        "apt-cache": f'[ "$last" = {known} ]',
    }
    for name, text in programs.items():
        (root / "bin" / name).write_text(f"#!/bin/sh\nfor last; do :; done\n{text}\n")
        (root / "bin" / name).chmod(0o755)
    process = start(policy, environment, then='echo "$*" >"$DPKG_ROOT/argv"')
    assert process.wait(60) == 0
    assert (root / "argv").read_text().strip().endswith(f"--force-confold {asked}")


@pytest.mark.parametrize(("then", "code"), [("exit 0", 0), ("exit 100", 2)])
def test_it_exists_only_while_packages_are_installed(
    machine: tuple[Path, Mapping[str, str]], then: str, code: int
) -> None:
    policy, environment = machine
    assert start(policy, environment, then=then).wait(60) == code
    assert (policy.parents[2] / "seen").read_text().endswith("exit 101\n")
    assert not policy.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_the_policy(machine: tuple[Path, Mapping[str, str]], number: signal.Signals) -> None:
    policy, environment = machine
    installing = start(policy, environment, then="sleep 60 & echo $! >$DPKG_ROOT/pid; wait")
    wait_for(policy.parents[2] / "pid")
    os.killpg(installing.pid, number)  # as Ctrl-C does, and a terminal that is closed
    subprocess.run(("kill", (policy.parents[2] / "pid").read_text().strip()), check=False, capture_output=True)
    assert installing.wait(60) == -number
    assert not policy.exists()


def test_the_policy_of_a_killed_run_is_removed_by_the_next_but_not_one_of_the_user(
    machine: tuple[Path, Mapping[str, str]],
) -> None:
    policy, environment = machine
    installing = start(policy, environment, then="sleep 60 & echo $! >$DPKG_ROOT/pid; wait")
    wait_for(policy.parents[2] / "pid")
    os.killpg(installing.pid, signal.SIGKILL)
    installing.wait(60)
    assert policy.exists()
    (policy.parents[2] / "list").write_text("")  # also where nothing is to be installed
    assert start(policy, environment, then="exit 0").wait(60) == 0
    assert not policy.exists()

    policy.write_text("#!/bin/sh\n# put here by the people of this machine\nexit 101\n")
    (policy.parents[2] / "list").write_text("fio\n")
    assert start(policy, environment, then="exit 0").wait(60) == 0
    assert policy.exists()
