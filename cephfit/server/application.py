"""The web application: the API, the pages, static files, and how errors are answered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from cephfit import __version__
from cephfit.core.errors import CephfitError
from cephfit.server.access_control import Access, AccessControl
from cephfit.server.api import api_router
from cephfit.server.pages import error_page, page_router
from cephfit.server.refused_error import RefusedError, status_of
from cephfit.server.service import Service

_STATIC = {
    "style.css": ("text/css", ("report/style.css", "server/server.css")),
    "page.js": ("text/javascript", ("server/page.js",)),
}
"""Static files: their type, and the files of ``templates/`` that are joined."""


def create_application(service: Service, access: Access) -> ASGIApp:
    """Return the application, which checks each request before anything else."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.workloads.close()

    application = FastAPI(
        title="cephfit",
        version=__version__,
        description="Which storage configuration fits a workload: uploads, predictions, and the runs of a store.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    application.include_router(api_router(service))
    application.include_router(page_router(service))
    _add_static(application)
    _add_errors(application)
    return AccessControl(application, access, refused)


def refused(path: str, error: CephfitError) -> Response:
    """Answer an error: JSON under /api, otherwise a page."""
    if path.startswith("/api/"):
        about = {"what": error.what, "where": error.where, "remedy": error.remedy}
        return JSONResponse({"error": about}, status_of(error))
    return error_page(error)


def _add_errors(application: FastAPI) -> None:
    @application.exception_handler(CephfitError)
    async def of_the_client(request: Request, error: CephfitError) -> Response:
        return refused(request.url.path, error)

    @application.exception_handler(RequestValidationError)
    async def of_a_parameter(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = " ".join(str(part) for part in first["loc"])
        return refused(request.url.path, RefusedError(422, str(first["msg"]), where=where, remedy="correct it"))

    @application.exception_handler(HTTPException)
    async def of_a_route(request: Request, error: HTTPException) -> Response:
        answer = refused(
            request.url.path, RefusedError(error.status_code, str(error.detail), where=request.url.path[:200])
        )
        answer.headers.update(error.headers or {})
        return answer


def _add_static(application: FastAPI) -> None:
    templates = resources.files("cephfit.templates")
    for name, (kind, parts) in _STATIC.items():
        text = "".join(templates.joinpath(*part.split("/")).read_text(encoding="utf-8") for part in parts)
        answer = Response(text, media_type=kind)
        application.get(f"/static/{name}", include_in_schema=False)(lambda answer=answer: answer)
