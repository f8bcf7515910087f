"""The commands of lab/evaluate.sh, run with a program that records how it is called in place of cephfit."""

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDER = """#!/bin/sh
echo "$*" >>"$CALLS"
case "$1 $2" in
"lab status") exit 1 ;;
evaluate*) mkdir -p "$FOLDER/traces/mail" && touch "$FOLDER/traces/mail/sda.blktrace.0" ;;
esac
"""


def calls(folder: Path, *workloads: str, **variables: str) -> list[str]:
    program, log = folder / "cephfit", folder / "calls"
    program.write_text(RECORDER)
    program.chmod(0o755)
    results = folder / "results"
    given = {**os.environ, "CALLS": str(log), "FOLDER": str(results), **variables}
    argv = [str(ROOT / "lab" / "evaluate.sh"), str(results), str(program), *workloads]
    subprocess.run(argv, env=given, check=True, capture_output=True)
    return log.read_text().splitlines()


def test_a_missing_program_ends_it_before_the_sweep(tmp_path: Path) -> None:
    needed = tmp_path / "bin"
    needed.mkdir()
    (needed / "dirname").symlink_to("/usr/bin/dirname")
    with pytest.raises(subprocess.CalledProcessError) as ended:
        calls(tmp_path, "mail", "git", PATH=str(needed))
    assert b"git not found: apt install git" in ended.value.stderr
    assert not (tmp_path / "calls").exists()


def starting(lines: list[str], words: str) -> str:
    (found,) = [line for line in lines if line.startswith(words)]
    return found


def test_another_release_sweep_and_some_workloads_are_chosen(tmp_path: Path) -> None:
    lines = calls(tmp_path, "mail", "key-value", EVALUATION_RELEASE="reef", EVALUATION_SWEEP="short.yaml")
    assert starting(lines, "lab up") == "lab up --name evaluation-reef --release reef"
    assert starting(lines, "sweep run").startswith("sweep run short.yaml --target lab:evaluation-reef ")
    evaluated = starting(lines, "evaluate").split()
    workloads = [Path(after).name for word, after in pairwise(evaluated) if word == "--workload"]
    assert workloads == ["mail", "key-value"]
    assert starting(lines, "lab down") == "lab down --name evaluation-reef"


def test_all_workloads_run_on_the_machine_s_release_and_are_assessed(tmp_path: Path) -> None:
    lines = calls(tmp_path)
    assert starting(lines, "lab up") == "lab up --name evaluation"
    assert starting(lines, "evaluate").count("--workload ") == 13
    results = tmp_path / "results"
    assert f"-o {results}/profiles/mail.json" in starting(lines, "trace profile")
    assert starting(lines, "assess") == (
        f"assess {results}/results.sqlite --profile {results}/profiles --export {results}/assessed"
    )
