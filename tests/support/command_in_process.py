"""`cephfit` in this process, where a separate process is not what the test is about."""

import subprocess
import sys
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner

from cephfit.cli.main import main


def run_in_process(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder; return its output and its exit code as if it had been a process."""
    words, status = [*map(str, arguments)], 0
    with CliRunner().isolation() as (output, errors, _), chdir(folder or Path.cwd()):
        try:
            main(words)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        sys.stdout.flush()
        sys.stderr.flush()
        return subprocess.CompletedProcess(words, status, output.getvalue().decode(), errors.getvalue().decode())
