"""The pages for people: plain templates; forms work without scripts."""

from typing import Annotated, Any, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse, Response

from cephfit import __version__
from cephfit.core.errors import CephfitError, RefusedError
from cephfit.core.units import GIB, KIB, MIB
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE, MODELS
from cephfit.results.report import formatting
from cephfit.results.report.render import environment
from cephfit.server.api import MODEL, RUN_ID, TEXT, RunId, WorkloadId, status_of
from cephfit.server.service import CHOICES, Service
from cephfit.server.workload_answer import OBJECTIVES, Objective
from cephfit.server.workloads import FOLDERS, Workload, WorkloadState


def page(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template of ``templates/server``; every value is escaped, unless it is ``Markup``."""
    templates = environment(autoescape=True, folders=FOLDERS)
    templates.filters.update(moment=formatting.moment, nbytes=_size_text)
    return HTMLResponse(templates.get_template(template).render(version=__version__, **values), status)


def _size_text(nbytes: int) -> str:
    """Format a size for people: ``812 bytes``, ``3.5 MiB``."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes} bytes"


def error_page(error: CephfitError) -> HTMLResponse:
    """Return the page of an error: what was wrong, where, and what to do."""
    return page("error.html.j2", status=status_of(error), error=error)


def page_router(service: Service) -> APIRouter:
    """Return the routes of the pages."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    def stored(read: Any) -> tuple[list[Any], str]:
        """Return what ``read`` returns about runs; or nothing, and why."""
        try:
            return read(), ""
        except CephfitError as error:
            return [], str(error)

    @router.get("/")
    def start() -> Response:
        runs, fault = stored(service.runs.summaries)
        return page(
            "start.html.j2",
            runs=runs,
            fault=fault,
            workloads=service.workloads.all(),
            most_nbytes=service.most_nbytes,
            choices=CHOICES,
        )

    @router.get("/login")
    def login() -> Response:
        return page("login.html.j2")

    @router.get("/runs/{run_id}")
    def run(run_id: RunId) -> Response:
        about = service.runs.description(run_id)
        return page("run.html.j2", run=about, progress=service.runs.progress(run_id))

    @router.get("/runs/{run_id}/progress")
    def progress(run_id: RunId) -> Response:
        return page("progress.html.j2", progress=service.runs.progress(run_id))

    @router.post("/workloads")
    async def upload(request: Request) -> Response:
        workload = await service.upload(request)
        return RedirectResponse(f"/workloads/{workload.id}", 303)

    @router.post("/workloads/{workload_id}/baselines")
    async def baselines(workload_id: WorkloadId, request: Request) -> Response:
        await service.upload_baselines(request, service.workloads.find(workload_id))
        return RedirectResponse(f"/workloads/{workload_id}?baselines=csv#answer", 303)

    @router.post("/workloads/{workload_id}/remove")
    def remove(workload_id: WorkloadId) -> Response:
        service.workloads.remove(service.workloads.find(workload_id))
        return RedirectResponse("/", 303)

    @router.get("/workloads/{workload_id}")
    async def workload(
        workload_id: WorkloadId,
        baselines: Literal["", "store", "csv"] = "",
        run: Annotated[str, Query(pattern=RUN_ID)] | None = None,
        load: Annotated[str, Query(max_length=200, pattern=TEXT)] = "",
        model: Annotated[str, Query(pattern=MODEL)] = MODELS[0].name,
        objective: Annotated[list[Objective], Query()] = [],  # noqa: B006
    ) -> Response:
        found = service.workloads.find(workload_id)
        runs, fault = await run_sync(stored, service.runs.names)
        answer, refused = "", None
        if baselines and found.state is WorkloadState.READY:
            try:
                answer = (
                    await service.answer(
                        found,
                        from_csv=baselines == "csv",
                        run_id=run,
                        load=load,
                        model=model,
                        confidence=DEFAULT_CONFIDENCE,
                        objectives=tuple(objective),
                    )
                )["html"]
            except RefusedError as refusal:
                refused = refusal
        return page(
            "workload.html.j2",
            status=200 if refused is None else refused.status,
            workload=found,
            description=_description(found),
            runs=runs,
            fault=fault,
            answer=Markup(answer),
            refused=refused,
            chosen={"baselines": baselines, "run": run, "load": load, "model": model, "objectives": objective},
            models=[model.name for model in MODELS],
            objectives=OBJECTIVES,
        )

    return router


def _description(workload: Workload) -> Markup:
    """Return the HTML that the worker rendered, in which every name is escaped."""
    if workload.state is not WorkloadState.READY:
        return Markup("")
    return Markup(workload.description.read_text(encoding="utf-8"))
