"""Shell completion of values on the command line, and `cephfit completion`, which prints the script for a shell.

The user waits for the answer after every press of the Tab key. So nothing here opens a cluster or loads a heavy
package, and any error results in no suggestions and no message.
"""

import contextlib
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

_Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

TRACE_FORMATS = (
    *("alibaba", "biosnoop", "blkparse", "blkparse-f", "blkreplay", "blktrace", "block-events", "columns"),
    *("disksim", "disksim-validate", "fio-iolog", "fiu", "iosnoop", "mqsim", "msr", "oracle-general", "parquet"),
    *(
        "qemu",
        "rbd-replay",
        "spc",
        "strace",
        "systor17",
        "tencent",
        "vscsi-binary",
        "vscsi-csv",
        "vscsi-histogram",
        "xperf",
    ),
)
"""The names in ``traces/formats.py``, whose readers take too long to load here."""

_MOST_RUNS = 50
_SQLITE_URL = "sqlite:///"


def _silently(offer: Callable[[click.Context, str], Iterable[str | CompletionItem]]) -> _Completer:
    """Keep the values that begin with the incomplete word; none after an error."""

    @wraps(offer)
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        items: list[CompletionItem] = []
        with contextlib.suppress(Exception):
            for one in offer(context, incomplete):
                item = one if isinstance(one, CompletionItem) else CompletionItem(one)
                if item.value.startswith(incomplete):
                    items.append(item)
        return items

    return complete


@_silently
def workload_names(_context: click.Context, _incomplete: str) -> Iterator[str]:
    """``pgbench`` and the ready programs."""
    from cephfit.lab.workloads import ready_programs

    yield from ("pgbench", *ready_programs(), "program:")


@_silently
def targets(_context: click.Context, incomplete: str) -> Iterator[str]:
    """``lab``, ``sim``, ``ceph`` and names known on this machine: labs, ceph.conf files, clouds."""
    kind, colon, which = incomplete.partition(":")
    if not colon:
        yield from ("ceph", "iscsi://", "lab", "local:", "nfs://", "openstack:", "sim", "swift://")
    if kind == "local" and colon:
        yield from (f"local:{path}" for path in _paths(which))
        return
    if kind == "lab" and which.startswith("/"):
        yield from (f"lab:{path}" for path in _paths(which))
        return
    # A word without a colon may begin several kinds of targets.
    if "lab".startswith(kind):
        yield from (f"lab:{name}" for name in _labs())
    if kind in ("iscsi", "nfs", "swift"):
        yield from (f"{kind}:lab:{name}" for name in _labs())
    if "ceph".startswith(kind):
        yield from (f"ceph:{name}" for name in _ceph_confs())
    if "openstack".startswith(kind):
        yield from (f"openstack:{name}" for name in _clouds())


def _labs() -> list[str]:
    from platformdirs import user_state_path

    return sorted(file.parent.name for file in (user_state_path("cephfit") / "labs").glob("*/lab.json"))


def _ceph_confs() -> list[str]:
    return sorted(path.stem for path in Path("/etc/ceph").glob("*.conf") if path.stem != "ceph")


def _clouds() -> list[str]:
    """Names in the clouds.yaml that openstacksdk would read."""
    import yaml

    named = os.environ.get("OS_CLIENT_CONFIG_FILE")
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    places = [Path(named)] if named else []
    places += [folder / "clouds.yaml" for folder in (Path(), home / "openstack", Path("/etc/openstack"))]
    for place in places:
        if place.is_file():
            return sorted(yaml.safe_load(place.read_text())["clouds"])
    return []


@_silently
def runs(context: click.Context, _incomplete: str) -> Iterator[CompletionItem]:
    """The newest runs of the store on the command line, opened read-only."""
    place = context.params.get("store") or context.params.get("location") or "results.sqlite"
    path = Path(str(place).removeprefix(_SQLITE_URL))
    if "://" in str(path) or not path.is_file():
        return  # a database server may be slow
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0.1)) as store:
        rows = store.execute(
            "SELECT run_id, sweep_name, target FROM cephfit_runs ORDER BY id DESC LIMIT ?", (_MOST_RUNS,)
        ).fetchall()
    for run_id, sweep, target in rows:
        yield CompletionItem(run_id, help=f"{sweep} on {target}")


@_silently
def stores(_context: click.Context, incomplete: str) -> Iterator[str]:
    """SQLite files, by their usual suffixes, and folders."""
    return _paths(incomplete, ".sqlite", ".db")


@_silently
def measured_rates(_context: click.Context, incomplete: str) -> Iterator[str]:
    """Stores, CSV files and folders."""
    return _paths(incomplete, ".sqlite", ".db", ".csv")


@_silently
def sweep_files(_context: click.Context, incomplete: str) -> Iterator[str]:
    """The bundled sweep files, and YAML files."""
    import cephfit.sweeps as bundled

    yield from sorted(path.stem for path in Path(str(bundled.__file__)).parent.glob("*.yaml"))
    yield from _paths(incomplete, ".yaml", ".yml")


@_silently
def configurations(context: click.Context, incomplete: str) -> Iterator[str]:
    """Names declared in the sweep file, after the last comma; not those of a design, which needs planning."""
    import yaml

    import cephfit.sweeps as bundled

    named = Path(str(context.params["sweep_text"]))
    ready = Path(str(bundled.__file__)).parent / f"{named}.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with (named if named.is_file() else ready).open("rb") as stream:
        declared = yaml.load(stream, loader)["configurations"]  # a safe loader, the fast one if available
    head, comma, _ = incomplete.rpartition(",")
    given = head.split(",")
    yield from (f"{head}{comma}{name}" for name in map(str, declared) if name not in given)


@_silently
def options_of_ceph(_context: click.Context, _incomplete: str) -> Iterator[str]:
    """Options of all known releases of Ceph."""
    from cephfit.ceph.options.option_history import histories

    return iter(histories())


@_silently
def components(_context: click.Context, _incomplete: str) -> Iterator[str]:
    """Return the components of options in `params tree`."""
    from cephfit.ceph.options.option_catalogue import COMPONENTS

    return iter(COMPONENTS)


@_silently
def releases(_context: click.Context, _incomplete: str) -> Iterator[str]:
    """Return the releases whose options are known without a cluster."""
    from cephfit.ceph.options.option_archive import known_versions

    return iter(known_versions())


@_silently
def trace_formats(_context: click.Context, _incomplete: str) -> Iterator[str]:
    """Return the names of the trace formats."""
    return iter(TRACE_FORMATS)


def _paths(incomplete: str, *suffixes: str) -> Iterator[str]:
    """Folders (with a final slash) and files that match the incomplete path, spelled as typed.

    Args:
        incomplete: the beginning of a path.
        suffixes: of the files; none for all.
    """
    head, slash, begin = incomplete.rpartition("/")
    folder = Path(f"{head}{slash}" or ".").expanduser()
    for entry in sorted(os.scandir(folder), key=lambda found: found.name):
        if entry.name.startswith(".") and not begin.startswith("."):
            continue
        if entry.is_dir():
            yield f"{head}{slash}{entry.name}/"
        elif not suffixes or entry.name.endswith(suffixes):
            yield f"{head}{slash}{entry.name}"


VARIABLE = "_CEPHFIT_COMPLETE"
"""With this variable set, cephfit prints completions instead of running a command."""

_BREAKS = re.compile("[:=]+")

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response completion type value

    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)

    for completion in $response; do
        type="${completion%%%%,*}" value="${completion#*,}"
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done

    # These endings are continued: add no space.
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:/=] ]]; then
        compopt -o nospace
    fi
    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""


class _Bash(BashComplete):
    """Completes words with a colon, such as ``lab:default``.

    Bash breaks words at ``:`` and ``=`` (``COMP_WORDBREAKS``) and replaces only what follows the last break, while
    click treats each part as a word. Here parts are joined, and answers omit the text before the last break.
    """

    source_template = _BASH
    _n_typed = 0

    def get_completion_args(self) -> tuple[list[str], str]:
        parts = split_arg_string(os.environ["COMP_WORDS"])
        index = int(os.environ["COMP_CWORD"])
        parts = parts[: index + 1] + [""] * (index + 1 - len(parts))
        words: list[str] = []
        is_open = False
        for part in parts:
            is_break = _BREAKS.fullmatch(part) is not None
            if words and (is_break or is_open) and len(words) > 1:
                words[-1] += part
            else:
                words.append(part)
            is_open = is_break
        last = parts[-1]
        word = re.sub("^--[^=]*=", "", words[-1])
        self._n_typed = len(word) if _BREAKS.fullmatch(last) else max(len(word) - len(last), 0)
        return words[1:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        value = item.value if item.value.startswith("--") else item.value[self._n_typed :]
        return f"{item.type},{value}"


def register_bash_completion() -> None:
    """Register this completion of bash with click."""
    add_completion_class(_Bash, "bash")


@click.command("completion", short_help="Print the shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: eval "$(cephfit completion bash)" in ~/.bashrc; for zsh the same in ~/.zshrc; for fish:
    cephfit completion fish > ~/.config/fish/completions/cephfit.fish

    It completes commands and options, and values too: targets, runs of the store, sweep files, configurations,
    formats, options of Ceph.
    """
    from cephfit.cli.main import cephfit

    register_bash_completion()
    completion_class = get_completion_class(shell)
    assert completion_class is not None, "the choice lists only shells that click knows"
    click.echo(completion_class(cephfit, {}, "cephfit", VARIABLE).source())
