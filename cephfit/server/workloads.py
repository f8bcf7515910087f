"""The workloads of a running server: uploaded, profiled in the background, described as HTML."""

import json
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import cephfit
from cephfit.core.errors import CephfitError, InputError, RefusedError
from cephfit.core.profile_files import read_profile
from cephfit.core.units import format_seconds
from cephfit.core.values.cells import SIZE_BINS, Op
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import WorkloadDemand, rate_text
from cephfit.results.report.figures.report_figures import histograms_of, workload_figure
from cephfit.results.report.render import environment
from cephfit.server.worker_process import Limits, Workers
from cephfit.traces.description.stored_descriptions import check_description

_log = logging.getLogger(__name__)
_AT_ONCE = 2
"""Worker processes that read traces at the same time, and as many that predict."""
_WAITING = 16
"""Uploads that may wait for a worker, or be on their way."""
_KEPT = 200
"""Workloads that are kept; the oldest are removed."""
_PATIENCE_SECONDS = 60.0


class WorkloadState(StrEnum):
    """Where the profile of a workload is."""

    QUEUED = "queued"
    PROFILING = "profiling"
    READY = "ready"
    FAILED = "failed"


@dataclass(slots=True)
class Workload:
    """An uploaded workload.

    Attributes:
        id: random, part of the page's address.
        folder: of this workload, in the folder of the server.
        names: names of the files as the client gave them.
        options: fields of the upload, as in ``READ_OPTIONS``.
        nbytes: of the files.
        created_ns: wall clock, ns since the epoch.
        error: why profiling failed; empty unless it did.
        name: of the profile; of the first file until it is known.
    """

    id: str
    folder: Path
    names: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    nbytes: int = 0
    created_ns: int = field(default_factory=time.time_ns)
    state: WorkloadState = WorkloadState.QUEUED
    error: str = ""
    name: str = ""

    @property
    def files(self) -> Path:
        """Folder of the uploaded files; removed once they have been read."""
        return self.folder / "files"

    @property
    def profile(self) -> Path:
        return self.folder / "profile.json"

    @property
    def description(self) -> Path:
        """The description as HTML."""
        return self.folder / "description.html"

    @property
    def baselines(self) -> Path:
        """An uploaded CSV file of baselines; may not exist."""
        return self.folder / "baselines.csv"

    @property
    def is_settled(self) -> bool:
        return self.state in (WorkloadState.READY, WorkloadState.FAILED)


class Workloads:
    """All workloads of a server. Safe to use from several threads.

    Args:
        folder: of the server; each workload has a folder in it.
        limits: of each worker process.
    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder = folder
        self._workers = Workers(limits)
        self._known: dict[str, Workload] = {}
        self._lock = threading.Lock()
        self._readers = ThreadPoolExecutor(_AT_ONCE, "profile")
        self._predicting = threading.BoundedSemaphore(_AT_ONCE)
        self._arriving = 0

    def close(self) -> None:
        """Stop reading and predicting."""
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._workers.close()

    def all(self) -> list[Workload]:
        """Return the workloads, newest first."""
        with self._lock:
            return list(reversed(self._known.values()))

    def find(self, workload_id: str) -> Workload:
        """Return a workload by its id.

        Raises:
            RefusedError: there is no such workload.
        """
        with self._lock:
            found = self._known.get(workload_id)
        if found is None:
            raise RefusedError(
                404,
                "there is no such workload",
                remedy="it was removed, or the server was restarted: upload it again",
            )
        return found

    @contextmanager
    def arriving(self) -> Iterator[Workload]:
        """Yield a new workload with an empty folder for files; it is removed if the block raises an error.

        Raises:
            RefusedError: too many uploads wait.
        """
        with self._lock:
            if self._arriving + sum(not w.is_settled for w in self._known.values()) >= _WAITING:
                raise RefusedError(429, "too many uploads wait to be read", remedy="try again in a minute")
            self._arriving += 1
        new = Workload(secrets.token_hex(8), self._folder)
        new.folder = self._folder / new.id
        try:
            new.files.mkdir(parents=True)
            yield new
        except BaseException:
            shutil.rmtree(new.folder, ignore_errors=True)
            raise
        finally:
            with self._lock:
                self._arriving -= 1

    def add(self, new: Workload) -> None:
        """Keep a workload whose files have arrived, and read them in the background."""
        new.name = new.name or new.options.get("name") or new.names[0]
        with self._lock:
            self._known[new.id] = new
            old = [w for w in self._known.values() if w.is_settled]
            surplus = old[: max(0, len(self._known) - _KEPT)]
        for workload in surplus:
            self.remove(workload)
        self._readers.submit(self._read, new)

    def remove(self, workload: Workload) -> None:
        """Remove a workload and its files.

        Raises:
            RefusedError: it is being read.
        """
        with self._lock:
            if not workload.is_settled:
                raise RefusedError(409, "the workload is being read", remedy="remove it when it has been read")
            self._known.pop(workload.id, None)
        shutil.rmtree(workload.folder, ignore_errors=True)

    def answer(self, workload: Workload, question: dict[str, Any]) -> dict[str, Any]:
        """Predict in a worker process; return its document and its HTML. Blocks.

        Raises:
            RefusedError: the workload has no profile, the question cannot be answered, or the server is busy.
        """
        if workload.state is not WorkloadState.READY:
            raise RefusedError(409, f"the workload is {workload.state}", remedy="wait until its state is ready")
        if not self._predicting.acquire(timeout=_PATIENCE_SECONDS):
            raise RefusedError(429, "too many predictions are running", remedy="try again in a minute")
        try:
            request = {"kind": "answer", "profile": str(workload.profile), "question": question}
            return self._workers.run(request, workload.folder)
        finally:
            self._predicting.release()

    def _read(self, workload: Workload) -> None:
        workload.state = WorkloadState.PROFILING
        request = {"kind": "profile", "folder": str(workload.files), "options": workload.options}
        try:
            found = self._workers.run(request, workload.folder)
            workload.profile.write_text(json.dumps(found["profile"]), encoding="utf-8")
            workload.description.write_text(found["html"], encoding="utf-8")
            workload.name = found["profile"]["name"]
        except CephfitError as error:
            workload.error = str(error)
        except Exception as error:  # otherwise the workload would be read for ever
            _log.exception("workload %s", workload.id)
            workload.error = f"it cannot be read: {type(error).__name__}"
        finally:
            shutil.rmtree(workload.files, ignore_errors=True)
            workload.state = WorkloadState.FAILED if workload.error else WorkloadState.READY


READ_OPTIONS = ("name", "format", "columns", "assume_op", "action", "blkparse_format", "parts", "describe")
"""Fields of an upload that describe its files, as ``cephfit.profile_trace`` takes them."""
_PROFILE_NBYTES = 64 << 20
"""Larger files are not read as a profile."""


def read_workload(folder: Path, options: Mapping[str, str]) -> Profile:
    """Read the files of a folder: one profile, or traces that are read together.

    Args:
        folder: with the uploaded files only.
        options: of ``READ_OPTIONS``; empty values are not given.

    Raises:
        InputError: they are neither, or damaged.
    """
    files = sorted(folder.iterdir())
    if len(files) == 1 and not options.get("format") and (found := _profile_in(files[0])) is not None:
        return found
    given = {key: options.get(key) or None for key in READ_OPTIONS}
    return cephfit.profile_trace(
        files,
        name=given["name"],
        format=given["format"],
        action=given["action"],
        parts=given["parts"] is not None,
        describe=given["describe"] or "fast",
        assume_op=given["assume_op"],
        columns=given["columns"],
        blkparse_format=given["blkparse_format"],
    )


def _profile_in(file: Path) -> Profile | None:
    """Return the profile in a file of `cephfit trace profile -o`; None for a trace."""
    with file.open("rb") as opened:
        if opened.read(1) != b"{" or file.stat().st_size > _PROFILE_NBYTES:
            return None
    try:
        found = read_profile(file)
    except InputError:
        if file.suffix == ".json":
            raise
        return None
    check_description(found.description, where=file.name)
    return found


FOLDERS = ("server", "report")
"""Folders of ``templates/`` with the templates of the page."""


def described(profile: Profile) -> str:
    """Return the description; every name of the trace is escaped."""
    template = environment(autoescape=True, folders=FOLDERS).get_template("description.html.j2")
    about = profile.description
    return template.render(
        profile=profile,
        rows=_rows(profile),
        facts=_facts(profile),
        workload=workload_figure(profile),
        histograms=histograms_of(profile),
        phases=(about.get("behaviour") or {}).get("phases") or (),
        lacks=about.get("lacks", ()),
        notes=about.get("notes", ()),
        skipped=about.get("skipped", {}),
    )


def _rows(profile: Profile) -> list[dict[str, Any]]:
    """Return the accesses by size bin, and of all sizes."""
    rows: list[dict[str, Any]] = []
    for size in SIZE_BINS:
        by_op = {
            op: (profile.accesses[op][size.name], (profile.random_by_bin or {}).get(op, {}).get(size.name))
            for op in Op
        }
        rows.append({"size": size.name, "by_op": by_op})
    total = {op: (sum(profile.accesses[op].values()), profile.random_share(op)) for op in Op}
    return [*rows, {"size": "all", "by_op": total}]


def _facts(profile: Profile) -> list[tuple[str, str]]:
    """Return what the workload asks for, as text."""
    about: Mapping[str, Any] = profile.description
    demand = WorkloadDemand.of(profile)
    facts = [("accesses", f"{profile.n_accesses:,}")]
    if demand is None:
        return facts
    facts.append(("duration", format_seconds(demand.seconds)))
    facts.append(("accesses per second", rate_text(demand.accesses_per_s)))
    if demand.nbytes_per_s is not None:
        facts.append(("MiB/s", rate_text(demand.nbytes_per_s / (1 << 20))))
    if demand.busiest_second is not None:
        facts.append(("busiest second", f"{rate_text(demand.busiest_second)} accesses"))
    if demand.outstanding is not None:
        facts.append(("outstanding accesses", f"{demand.outstanding:.3g} on average while any was outstanding"))
    if demand.busy_share is not None:
        facts.append(("time with I/O outstanding", f"{100 * demand.busy_share:.3g} %"))
    if about.get("n_disks", 1) > 1:
        facts.append(("disks", str(about["n_disks"])))
    return facts
