"""Options of `cephfit serve` that are refused before it listens."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cephfit.cli.main import cephfit
from cephfit.core.errors import CephfitError
from cephfit.results.store.sample_store import Store


def refusal(*arguments: str) -> str:
    """Return the message. The address cannot be listened on, so that an accepted option starts no server."""
    result = CliRunner().invoke(cephfit, ["serve", "--listen", "192.0.2.1", "--port", "0", *arguments])
    assert result.exit_code != 0
    return str(result.exception) if isinstance(result.exception, CephfitError) else result.output


@pytest.mark.parametrize(
    ("option", "value", "what"),
    [
        ("--max-minutes", "nan", "range"),
        ("--max-minutes", "inf", "range"),
        ("--max-minutes", "1e300", "range"),
        ("--max-memory", "999999999999T", "is more than"),
        ("--max-upload", "0", "is not a size"),
        ("--host-name", "", "'' is not a host name"),
        ("--host-name", "<b>", "'<b>' is not a host name"),
        ("--host-name", "a/../b", "is not a host name"),
    ],
)
def test_impossible_options_are_refused(option: str, value: str, what: str) -> None:
    assert what in refusal(option, value)


def test_a_folder_or_another_file_is_no_store(tmp_path: Path) -> None:
    assert "this is a folder" in refusal("--store", str(tmp_path))
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    assert "not a store of results" in refusal("--store", str(other))
    assert other.read_text() == "hello"


def test_a_store_that_a_sweep_will_create_is_accepted_with_a_notice(tmp_path: Path) -> None:
    later = tmp_path / "later.sqlite"
    arguments = ["serve", "--listen", "192.0.2.1", "--port", "0", "--store", str(later)]
    result = CliRunner().invoke(cephfit, arguments)
    assert "cannot listen" in str(result.exception)
    assert result.stderr.count("\n") == 1
    assert f"{later}: there is no store of results here yet" in result.stderr
    assert not later.exists()
    Store.open(later, create=True).close()
    assert CliRunner().invoke(cephfit, arguments).stderr == ""
    assert "cannot listen" in refusal("--host-name", "storage.example", "--max-minutes", "0.5")
