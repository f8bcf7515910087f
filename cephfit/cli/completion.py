"""`cephfit completion`: the shell completion script, with additions to click's support of bash."""

import os
import re

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

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


def teach() -> None:
    """Make click answer bash in this way."""
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

    teach()
    completion_class = get_completion_class(shell)
    assert completion_class is not None, "the choice lists only shells that click knows"
    click.echo(completion_class(cephfit, {}, "cephfit", VARIABLE).source())
