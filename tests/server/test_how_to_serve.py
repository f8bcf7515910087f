"""The commands of docs/how-to-serve.md run as they are written, except for the port."""

import re
import shlex
import subprocess
from pathlib import Path

from click.testing import CliRunner
from running_server import serving

from cephfit.cli.main import cephfit

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_every_command_of_the_document_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to-serve.md").read_text()
    lines = [shlex.split(line, comments=True) for block in BLOCK.findall(text) for line in block.splitlines()]
    assert [words[0] for words in lines] == ["pip", "cephfit", "cephfit", "curl", "curl", "curl", "cephfit"]
    _, sweep, serve, *requests, other = lines
    store = tmp_path / "sim.sqlite"
    assert sweep[-1] == serve[serve.index("--store") + 1] == store.name
    assert CliRunner().invoke(cephfit, [*sweep[1:-1], str(store)]).exit_code == 0
    with serving(store, tmp_path, *serve[4:]) as server:
        for request in requests:
            words = [word.replace("http://127.0.0.1:8765", server.url) for word in request]
            words += ["--silent", "--fail-with-body"]
            done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
            assert done.returncode == 0, done.stdout
            assert '"name":"pgbench' in done.stdout or '"sweep":"quick"' in done.stdout
    with serving(store, tmp_path, *other[4:]) as server:
        assert "token: " in server.printed
