"""Where baselines come from: a store of results or a CSV file, told apart by content."""

from pathlib import Path

from cephfit.baseline import Baselines
from cephfit.errors import InputError
from cephfit.results import baseline_csv
from cephfit.results.baselines import baselines_of
from cephfit.results.store import Store
from cephfit.sample import OWN_LOAD

_SQLITE_MAGIC = b"SQLite format 3\0"


def open_baselines(location: str | Path, run_id: str | None = None, load: str = OWN_LOAD) -> Baselines:
    """The baselines of a store's run under one load, or of a CSV file.

    Args:
        location: path of either, or the URL of a store.
        run_id: of the run in the store; the newest if None.
        load: which; the measurement's own unless named.

    Raises:
        InputError: no such file or load, a CSV that cannot be used, or one with a run_id.
        StoreError: a store that cannot be used.
    """
    if is_store(location):
        with Store.open(location) as store:
            run = store.run(run_id)
            source = f"{store.name}, run {run.run_id}"
            return baselines_of(store.samples(run.run_id), source=source, load=load)
    if run_id is not None:
        raise InputError("a CSV file has no runs to choose from", where=str(location), remedy="leave out --run")
    return baseline_csv.read(Path(location), load=load)


def is_store(location: str | Path) -> bool:
    """Whether the location is a store rather than a CSV file.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    if isinstance(location, str) and "://" in location:
        return True
    try:
        with Path(location).open("rb") as file:
            return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            where=str(location),
            remedy="give the store that `cephfit sweep run` wrote, or a CSV file of baselines",
        ) from None
