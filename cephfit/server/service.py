"""What the API and the pages have in common: uploads, questions, and the store."""

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync
from starlette.requests import Request

from cephfit.core.units import MIB
from cephfit.core.values.cells import Op
from cephfit.server.refused_error import RefusedError
from cephfit.server.stored_runs import StoredRuns
from cephfit.server.upload import receive
from cephfit.server.workload_answer import Question
from cephfit.server.workload_files import READ_OPTIONS
from cephfit.server.workloads import Workload, Workloads
from cephfit.traces.formats import titles

_CSV_NBYTES = 64 * MIB
CHOICES = {
    "format": tuple(sorted(titles())),
    "assume_op": tuple(op.value for op in Op),
    "action": ("Q", "D"),
    "describe": ("fast", "full"),
    "parts": ("yes",),
}
"""Fields of an upload that have only these values."""


@dataclass(frozen=True, slots=True)
class Service:
    """One server: the runs of its store, its workloads, and its limit of uploads in bytes."""

    runs: StoredRuns
    workloads: Workloads
    most_nbytes: int

    async def upload(self, request: Request) -> Workload:
        """Receive the files of a workload, and begin to read them.

        Raises:
            RefusedError: see ``receive``; or a field has an unknown value.
        """
        with self.workloads.arriving() as new:
            got = await receive(request, new.files, self.most_nbytes, fields=READ_OPTIONS)
            for key, value in got.fields.items():
                if key in CHOICES and value not in CHOICES[key]:
                    raise RefusedError(
                        400, f"{value[:50]!r} is unknown", where=key, remedy=f"choose of {', '.join(CHOICES[key])}"
                    )
            new.names, new.options, new.nbytes = got.names, got.fields, got.nbytes
        self.workloads.add(new)
        return new

    async def upload_baselines(self, request: Request, workload: Workload) -> None:
        """Receive a CSV file of baselines for a workload; it replaces an earlier one.

        Raises:
            RefusedError: see ``receive``.
        """
        folder = workload.folder / "arriving"
        try:
            folder.mkdir()
        except OSError:
            raise RefusedError(409, "a file of baselines is arriving already", remedy="try again") from None
        try:
            await receive(request, folder, min(_CSV_NBYTES, self.most_nbytes), most_files=1)
            (file,) = folder.iterdir()
            file.rename(workload.baselines)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def answer(
        self,
        workload: Workload,
        *,
        from_csv: bool,
        run_id: str | None,
        load: str,
        model: str,
        confidence: float,
        objectives: tuple[str, ...],
    ) -> dict[str, Any]:
        """Return the document and the HTML of ``workload_answer.answered``.

        Raises:
            RefusedError: it cannot be answered.
        """
        if from_csv and not workload.baselines.is_file():
            raise RefusedError(409, "no CSV file of baselines was uploaded", remedy="upload one, or choose a run")
        location = str(workload.baselines) if from_csv else self.runs.location
        question = Question(location, None if from_csv else run_id, load, model, confidence, objectives)
        return await run_sync(self.workloads.answer, workload, asdict(question))


def store_location(text: str) -> str:
    """Return the location of a store as every process finds it; ``text``: a path or an SQLAlchemy URL."""
    return text if "://" in text else str(Path(text).expanduser().resolve())
