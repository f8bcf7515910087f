"""Shell completion, called as shells call it."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from command_in_process import run_in_process

from cephfit.cli.options.completers import TRACE_FORMATS
from cephfit.traces.formats import titles


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a lab called big, a cloud called east, a sweep file and a store with two runs."""
    for variable in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.delenv("OS_CLIENT_CONFIG_FILE", raising=False)
    lab = tmp_path / "XDG_STATE_HOME" / "cephfit" / "labs" / "big"
    lab.mkdir(parents=True)
    (lab / "lab.json").write_text("{}")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "clouds.yaml").write_text("clouds:\n  east: {}\n")
    (folder / "mine.yaml").write_text("configurations:\n  A: {}\n  fast: {}\n  wide: {}\n")
    with sqlite3.connect(folder / "results.sqlite") as store:
        store.execute("CREATE TABLE cephfit_runs (id INTEGER PRIMARY KEY, run_id, sweep_name, target)")
        store.executemany(
            "INSERT INTO cephfit_runs (run_id, sweep_name, target) VALUES (?, ?, ?)",
            [("r-old", "quick", "sim"), ("r-new", "quick", "lab")],
        )
    shutil.copy(folder / "results.sqlite", folder / "other.sqlite")
    monkeypatch.chdir(folder)
    return folder


def ask(words: list[str], shell: str = "fish", more: Mapping[str, str] | None = None) -> str:
    """Click's completions for words of which the last is incomplete."""
    joined = "\n".join(words) if shell == "bash" else " ".join(words)
    number = words[-1] if shell == "fish" else str(len(words) - 1)
    environment = {"_CEPHFIT_COMPLETE": f"{shell}_complete", "COMP_WORDS": joined, "COMP_CWORD": number}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**environment, **(more or {})}.items():
            patch.setenv(name, value)
        answer = run_in_process()
    assert answer.stderr == ""
    return answer.stdout


def offered(*words: str) -> list[str]:
    lines = ask(["cephfit", *words], "zsh").strip().splitlines()
    return [lines[i + 1] for i in range(0, len(lines), 3)]


def test_targets_are_kinds_and_existing_labs_and_clouds(home: Path) -> None:
    at_first = offered("sweep", "run", "quick", "--target", "")
    assert {"sim", "ceph", "lab", "lab:big", "local:", "openstack:", "openstack:east"} <= set(at_first)
    assert offered("verify", "--target", "lab:") == ["lab:big"]
    assert offered("restore", "--target", "openstack:") == ["openstack:east"]
    assert f"local:{home}/mine.yaml" in offered("sweep", "run", "quick", "--target", f"local:{home}/")


def test_runs_are_those_of_the_store_on_the_command_line_the_newest_first(home: Path) -> None:
    with sqlite3.connect(home / "other.sqlite") as store:
        store.execute("INSERT INTO cephfit_runs (run_id, sweep_name, target) VALUES ('r-other', 's', 't')")
    assert offered("report", "--run", "r") == ["r-new", "r-old"]
    assert offered("report", "--store", "other.sqlite", "--run", "") == ["r-other", "r-new", "r-old"]
    assert offered("sweep", "status", "--store", "sqlite:///other.sqlite", "--run", "r-ot") == ["r-other"]
    assert "quick on lab" in ask(["cephfit", "report", "--run", "r-n"], "zsh")


def test_sweep_files_are_the_ready_ones_and_yaml_files_here(home: Path) -> None:
    names = offered("sweep", "plan", "")
    assert {"quick", "one-pool", "mine.yaml", "clouds.yaml"} <= set(names)
    assert "results.sqlite" not in names
    assert offered("verify", "--sweep", "min") == ["mine.yaml"]


def test_configurations_of_the_sweep_file_follow_each_other(home: Path) -> None:
    assert offered("verify", "--sweep", "mine.yaml", "--configurations", "") == ["A", "fast", "wide"]
    assert offered("verify", "--sweep", "mine.yaml", "--configurations", "fast,") == ["fast,A", "fast,wide"]


def test_models_formats_options_and_releases(home: Path) -> None:
    assert "meyer" in offered("map", "--model", "")
    assert offered("trace", "profile", "--format", "vscsi-c") == ["vscsi-csv"]
    assert offered("report", "--format", "") == ["html", "md", "csv"]
    assert "osd_memory_target" in offered("params", "show", "osd_memory_t")
    assert offered("params", "tree", "--release", "18") == ["18.2.7"]
    assert "bluestore" in offered("params", "tree", "blue")


def test_all_trace_formats_are_offered() -> None:
    assert sorted(TRACE_FORMATS) == sorted(titles())


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (["--target", "lab", ":"], ["big"]),
        (["--target", "lab", ":", "b"], ["big"]),
        (["--target", "=", "lab", ":", "b"], ["big"]),
        (["--target", "lab:b"], ["lab:big"]),  # where bash does not break words at colons
        (["--store", "=", "oth"], ["other.sqlite"]),
        (["--stor"], ["--store"]),
    ],
)
def test_bash_breaks_words_at_colons_and_replaces_only_what_follows(
    home: Path, words: list[str], answers: list[str]
) -> None:
    lines = ask(["cephfit", "sweep", "run", "quick", *words], "bash").splitlines()
    assert [line.partition(",")[2] for line in lines] == answers


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_itself_completes_a_lab_with_the_script(home: Path) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "cephfit.cli.main", "completion", "bash"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    program = home / "cephfit"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cephfit.cli.main "$@"\n')
    program.chmod(0o755)
    ask_bash = f"""{script}
compopt() {{ echo "compopt $1 $2"; }}
COMP_WORDS=(cephfit verify --target lab : b) COMP_CWORD=5
_cephfit_completion {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
COMPREPLY=() COMP_WORDS=(cephfit verify --target loc) COMP_CWORD=3
_cephfit_completion {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    answer = subprocess.run(
        ["bash", "--norc", "-c", ask_bash], capture_output=True, text=True, timeout=60, check=False
    )
    assert (answer.stdout.splitlines(), answer.stderr) == (["big", "compopt -o nospace", "local:"], "")


@pytest.mark.parametrize("damage", ["no SQLite", "another database", "missing", "a server"])
def test_an_unreadable_store_gives_no_completions_and_no_message(home: Path, damage: str) -> None:
    place = home / "damaged.sqlite"
    if damage == "no SQLite":
        place.write_text("not a store")
    elif damage == "another database":
        sqlite3.connect(place).close()
    url = "postgresql://db.invalid/results" if damage == "a server" else str(place)
    assert offered("report", "--store", url, "--run", "") == []
    assert place.exists() == (damage in ("no SQLite", "another database"))


def test_damaged_files_do_not_affect_other_completions(home: Path) -> None:
    (home / "clouds.yaml").write_text("clouds: [")
    assert "sim" in offered("sweep", "run", "quick", "--target", "")
    assert offered("verify", "--sweep", "clouds.yaml", "--configurations", "") == []


def test_runs_are_those_of_the_store_in_the_configuration_file(home: Path) -> None:
    (home / "results.sqlite").rename(home / "far.sqlite")
    config = home.parent / "XDG_CONFIG_HOME" / "cephfit" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(f"store: {home}/far.sqlite")
    assert offered("report", "--run", "") == ["r-new", "r-old"]
    config.write_text("stor: far.sqlite")
    assert offered("report", "--run", "") == []
    assert "sim" in offered("sweep", "run", "quick", "--target", "s")
