"""The HTTP API under /api."""

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from pydantic import BaseModel

from cephfit import __version__
from cephfit.core.errors import CephfitError, InputError, RefusedError, StoreError
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE, MODELS
from cephfit.server.service import CHOICES, Service
from cephfit.server.workload_answer import Objective
from cephfit.server.workloads import READ_OPTIONS, Workload, WorkloadState

ID = r"^[0-9a-f]{16}$"
RUN_ID = r"^[\w.:@+-]{1,200}$"
TEXT = r"^[^\x00]*$"
MODEL = rf"^({'|'.join(model.name for model in MODELS)})$"

WorkloadId = Annotated[str, PathParameter(pattern=ID, description="Identifier of an uploaded workload.")]
RunId = Annotated[str, PathParameter(pattern=RUN_ID, description="Identifier of a run of the store.")]


class Problem(BaseModel):
    """What was wrong, where, and what to do."""

    what: str
    where: str
    remedy: str


class ProblemAnswer(BaseModel):
    """Answer to a request that is refused."""

    error: Problem


class ServerFacts(BaseModel):
    """The server."""

    version: str
    max_upload_nbytes: int


class WorkloadFacts(BaseModel):
    """An uploaded workload."""

    id: str
    name: str
    files: list[str]
    nbytes: int
    created_ns: int
    state: WorkloadState
    error: str
    has_baselines: bool


class SampleCounts(BaseModel):
    """Samples of a run by state, and how many of those planned were measured."""

    ok: int
    failed: int
    invalid: int
    skipped: int
    planned: int | None
    measured: int


class RunFacts(BaseModel):
    """A run of the store."""

    run: str
    sweep: str
    target: str
    begun_ns: int
    finished: bool
    measured_by: str | None
    simulated: bool
    imported: bool
    samples: SampleCounts


class RunSummary(RunFacts):
    """A run of the store, with the number of its configurations."""

    configurations: int


class ConfigurationCounts(BaseModel):
    """Samples of a configuration by state."""

    name: str
    ok: int
    failed: int
    invalid: int
    skipped: int


class SampleFacts(BaseModel):
    """One sample."""

    configuration: str
    cell: str
    client: str
    repeat: int
    attempt: int
    load: str
    state: str
    reason: str
    iops: float | None
    latency_ms: float | None
    finished_ns: int


class RunProgress(RunSummary):
    """The progress of a run, newest samples first; ``voided`` are those that do not count."""

    by_configuration: list[ConfigurationCounts]
    latest: list[SampleFacts]
    voided: list[SampleFacts]


class RunDescription(RunFacts):
    """What a run was."""

    seed: int
    cluster: str | None
    versions: dict[str, Any]
    configurations: list[dict[str, Any]]
    saved: dict[str, int]
    workload_runs: dict[str, int]


REFUSED: dict[int | str, dict[str, Any]] = {
    code: {"model": ProblemAnswer, "description": text}
    for code, text in {
        400: "The request is malformed.",
        401: "The token is missing or wrong.",
        403: "The request comes from a page of another site.",
        404: "There is no such run, workload or store.",
        408: "The upload stalled.",
        409: "Not in the present state.",
        413: "The upload is too large.",
        415: "The body has another type.",
        422: "The input cannot be used.",
        429: "The server is busy.",
    }.items()
}


def _form(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a form with files, which FastAPI does not parse itself."""
    properties = {"file": {"type": "string", "format": "binary"}, **fields}
    schema = {"type": "object", "required": ["file"], "properties": properties, "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


_UPLOAD_FIELDS = {
    name: {"type": "string", "maxLength": 1000, **({"enum": list(CHOICES[name])} if name in CHOICES else {})}
    for name in READ_OPTIONS
}


def facts_of(workload: Workload) -> WorkloadFacts:
    return WorkloadFacts(
        id=workload.id,
        name=workload.name,
        files=workload.names,
        nbytes=workload.nbytes,
        created_ns=workload.created_ns,
        state=workload.state,
        error=workload.error,
        has_baselines=workload.baselines.is_file(),
    )


def api_router(service: Service) -> APIRouter:
    """Return the routes of the API."""
    router = APIRouter(prefix="/api", responses=REFUSED)

    @router.get("/server")
    def server() -> ServerFacts:
        """Return the version and the limits of the server."""
        return ServerFacts(version=__version__, max_upload_nbytes=service.most_nbytes)

    @router.get("/runs")
    def runs() -> list[RunSummary]:
        """List the runs of the store, newest first."""
        return [RunSummary(**run) for run in service.runs.summaries()]

    @router.get("/runs/{run_id}")
    def run(run_id: RunId) -> RunDescription:
        """Show what a run was."""
        return RunDescription(**service.runs.description(run_id))

    @router.get("/runs/{run_id}/progress")
    def progress(run_id: RunId) -> RunProgress:
        """Show the progress of a run, its latest samples, and the latest of those that do not count."""
        return RunProgress(**service.runs.progress(run_id))

    @router.get("/workloads")
    def workloads() -> list[WorkloadFacts]:
        """List the uploaded workloads, newest first."""
        return [facts_of(workload) for workload in service.workloads.all()]

    @router.post("/workloads", status_code=202, openapi_extra=_form(_UPLOAD_FIELDS))
    async def upload(request: Request) -> WorkloadFacts:
        """Upload the trace files of one workload (several parts `file`), or a profile; it is read afterwards."""
        return facts_of(await service.upload(request))

    @router.get("/workloads/{workload_id}")
    def workload(workload_id: WorkloadId) -> WorkloadFacts:
        """Show the state of a workload."""
        return facts_of(service.workloads.find(workload_id))

    @router.delete("/workloads/{workload_id}", status_code=204)
    def remove(workload_id: WorkloadId) -> Response:
        """Remove a workload."""
        service.workloads.remove(service.workloads.find(workload_id))
        return Response(status_code=204)

    @router.get("/workloads/{workload_id}/profile")
    def profile(workload_id: WorkloadId) -> dict[str, Any]:
        """Return the profile, as `cephfit trace profile -o` writes it."""
        found = service.workloads.find(workload_id)
        if found.state is not WorkloadState.READY:
            raise RefusedError(409, f"the workload is {found.state}", remedy="wait until its state is ready")
        document: dict[str, Any] = json.loads(found.profile.read_text(encoding="utf-8"))
        return document

    @router.post("/workloads/{workload_id}/baselines", status_code=204, openapi_extra=_form({}))
    async def baselines(workload_id: WorkloadId, request: Request) -> Response:
        """Upload a CSV file of baselines for a workload; it replaces an earlier one."""
        await service.upload_baselines(request, service.workloads.find(workload_id))
        return Response(status_code=204)

    @router.get("/workloads/{workload_id}/answer")
    async def answer(
        workload_id: WorkloadId,
        baselines: Annotated[
            Literal["store", "csv"], Query(description="The store, or the uploaded CSV file.")
        ] = "store",
        run: Annotated[
            str | None, Query(pattern=RUN_ID, description="Run of the store; the newest if omitted.")
        ] = None,
        load: Annotated[str, Query(max_length=200, pattern=TEXT, description="Load of the sweep file.")] = "",
        model: Annotated[str, Query(pattern=MODEL, description="Model of throughput.")] = MODELS[0].name,
        confidence: Annotated[float, Query(ge=0.5, le=0.9999)] = DEFAULT_CONFIDENCE,
        objective: Annotated[list[Objective], Query(description="What to rank by; several: a Pareto front.")] = [],  # noqa: B006
    ) -> dict[str, Any]:
        """Predict every configuration for the workload: the document of `cephfit map --json`."""
        found = await service.answer(
            service.workloads.find(workload_id),
            from_csv=baselines == "csv",
            run_id=run,
            load=load,
            model=model,
            confidence=confidence,
            objectives=tuple(objective),
        )
        document: dict[str, Any] = found["answer"]
        return document

    return router


def status_of(error: CephfitError) -> int:
    """Return the HTTP status of an error: 404 for missing stores and runs, 422 for input that cannot be used."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, StoreError):
        return 404
    return 422 if isinstance(error, InputError) else 409
