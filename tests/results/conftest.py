"""What the tests of the results share."""

from pathlib import Path

import pytest
from example_run import fill

from cephfit.results.store.sample_store import Store


@pytest.fixture(scope="session")
def finished_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one finished run and everything that was concluded from it. Read only."""
    path = tmp_path_factory.mktemp("finished") / "results.db"
    with Store.open(path, create=True) as store:
        fill(store)
    return path
