"""The command line: help, exit codes, broken pipes."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_in_process import run_in_process

from cephfit.cli import main as command_line


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cephfit.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_names_every_command() -> None:
    answer = run("--help")
    assert answer.returncode == 0
    for name in ("demo", "lab", "sweep", "restore", "trace", "map", "verify", "report", "completion"):
        assert f"\n  {name} " in answer.stdout


def test_every_command_is_in_one_section_of_the_help() -> None:
    named = [name for names in command_line._SECTIONS.values() for name in names]
    assert sorted(named) == sorted(command_line._COMMANDS)


@pytest.mark.parametrize("command", ["demo", "lab", "sweep", "restore", "trace", "map", "verify", "report"])
def test_every_command_has_help(command: str) -> None:
    answer = run_in_process(command, "--help")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("Usage: cephfit")


def test_effects_describe_profile_differently_from_sweep_run() -> None:
    """A screening does not race, so --profile has another meaning than in `sweep run`."""
    effects, sweep_run = (
        " ".join(run_in_process("sweep", verb, "--help").stdout.split()) for verb in ("effects", "run")
    )
    assert "Also show the predicted effects on the workload of this profile" in effects
    assert "configurations race" not in effects
    assert "configurations race for" in sweep_run


def test_help_loads_none_of_the_heavy_packages() -> None:
    """Heavy imports would slow down `cephfit --help`; benchmarks/ measures the time."""
    script = (
        "import sys; sys.argv = ['cephfit', '--help']\n"
        "from cephfit.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'scipy', 'sqlalchemy', 'jinja2', 'rich', 'rados'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


def test_restore_of_a_simulation_reports_that_there_is_nothing_to_restore() -> None:
    answer = run_in_process("restore", "--target", "sim", "--json")
    assert (answer.returncode, json.loads(answer.stdout)["restored"]) == (0, False)
    assert "nothing to restore" in run_in_process("restore", "--target", "sim:noise=0.1").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (["trace", "--help"], ["sweep", "list"], ["sweep", "list", "--json"])
        ),
    ],
)
def test_closed_output_ends_the_command_without_a_message(arguments: list[str]) -> None:
    """As `cephfit sweep list | head -1`; also where the error output goes the same way (2>&1)."""
    for errors in (subprocess.PIPE, subprocess.STDOUT):
        reading, writing = os.pipe()
        os.close(reading)  # the reader is gone before anything is printed
        command = [sys.executable, "-m", "cephfit.cli.main", *arguments]
        with os.fdopen(writing, "wb") as output:
            answer = subprocess.run(command, stdout=output, stderr=errors, timeout=60, check=False)
        assert answer.returncode == 141
        assert not answer.stderr


def test_a_broken_pipe_to_another_program_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broken pipe is not the output, but the connection to another program."""

    def broken(*_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr("click.Group.invoke", broken)
    with pytest.raises(SystemExit) as end:
        command_line.main(["sweep", "list"])
    assert end.value.code == 2
    assert "a program or service closed its connection to cephfit" in capsys.readouterr().err


def test_an_unknown_command_is_exit_code_2() -> None:
    answer = run("swep")
    assert answer.returncode == 2
    assert "No such command 'swep'" in answer.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    answer = run("completion", shell)
    assert answer.returncode == 0
    assert "_CEPHFIT_COMPLETE" in answer.stdout


def test_completion_completes_commands() -> None:
    """The script's call of the program after a press of TAB."""
    environment = {"_CEPHFIT_COMPLETE": "bash_complete", "COMP_WORDS": "cephfit sw", "COMP_CWORD": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", "from cephfit.cli.main import cephfit; cephfit(prog_name='cephfit')"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert "plain,sweep" in answer.stdout


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOSPC, errno.EROFS])
def test_missing_permission_and_a_full_disk_are_reported_without_a_traceback(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(**_: object) -> None:
        raise OSError(code, os.strerror(code), "/some/file")

    monkeypatch.setattr(command_line.cephfit, "main", refused)
    with pytest.raises(SystemExit) as ended:
        command_line.main([])
    assert ended.value.code == 2
    remedy = "free disk space" if code == errno.ENOSPC else "choose another place"
    assert capsys.readouterr().err.startswith(f"cephfit: /some/file: {os.strerror(code)}\n  {remedy}")


@pytest.mark.parametrize(
    "words",
    [
        ("map", "{}", "--baselines", "b.csv"),
        ("sweep", "status", "--store", "{}"),
        ("import", "{}"),
        ("trace", "profile", "{}"),
    ],
)
def test_a_path_that_is_too_long_is_reported_in_one_line(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main([word.format("x" * 5000) for word in words])
    assert ended.value.code == 2
    first, *remedy = capsys.readouterr().err.splitlines()
    assert first.startswith("cephfit: xxx")
    assert len(remedy) == 1
    if sys.version_info < (3, 14):  # later ones take such a path for one that does not exist
        assert first.endswith("...: File name too long")
        assert len(first) < 200
        assert remedy == ["  name another path"]


def test_a_name_that_is_not_utf_8_is_reported_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Python reads such bytes of arguments as surrogates, which databases refuse."""
    store = tmp_path / "s.sqlite"
    run_in_process("sweep", "run", "quick", "--target", "sim", "--store", store)
    with pytest.raises(SystemExit) as ended:
        command_line.main(["map", "example:pgbench", "--baselines", str(store), "--run", os.fsdecode(b"a\x80b")])
    assert ended.value.code == 2
    assert "'a\\udc80b': this text is not UTF-8\n  use names in UTF-8\n" in capsys.readouterr().err


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise OSError(errno.EBADF, "bad file descriptor")

    monkeypatch.setattr(command_line.cephfit, "main", broken)
    with pytest.raises(OSError, match="bad file descriptor"):
        command_line.main([])
