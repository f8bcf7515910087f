"""The web application, and running it until it is interrupted: routes, static files, errors, folder and socket."""

import fcntl
import os
import secrets
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import resources
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from platformdirs import user_state_path
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from cephfit import __version__
from cephfit.core.errors import CephfitError, HostError, RefusedError
from cephfit.server.access_control import Access, AccessControl
from cephfit.server.api import api_router, status_of
from cephfit.server.pages import error_page, page_router
from cephfit.server.service import Service, StoredRuns, store_location
from cephfit.server.worker_process import Limits
from cephfit.server.workloads import Workloads

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


_LOCK = "lock"


class ServerFolder:
    """A folder that only this server uses. The kernel releases its lock when the process ends, also when killed.

    Creating one removes the folders of servers that were killed.

    Args:
        base: holds the folders of all servers of this user; None: in the user's state folder.

    Raises:
        HostError: the folder cannot be created.
    """

    def __init__(self, base: Path | None = None) -> None:
        base = user_state_path("cephfit") / "serve" if base is None else base
        try:
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            remove_abandoned(base)
            self.path, self._lock = _locked_folder(base)
        except OSError as error:
            raise HostError(
                f"the folder for uploads cannot be created: {error.strerror}",
                where=str(error.filename or base),
                remedy="set XDG_STATE_HOME to a folder that you may write to",
            ) from None

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _locked_folder(base: Path) -> tuple[Path, int]:
    """Create a folder, and lock it. Until it is locked, another start may take it for abandoned."""
    while True:
        path = base / f"server-{os.getpid()}-{secrets.token_hex(4)}"
        path.mkdir(mode=0o700)
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)


def remove_abandoned(base: Path) -> None:
    """Remove the folders of servers that no longer run."""
    for folder in base.glob("server-*-*"):
        lock = _free_lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _free_lock(folder: Path) -> int | None:
    """Lock a folder; None if a running server uses it, or if it is being created or removed right now."""
    with suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        return lock
    return None


_CONNECTIONS = 200
_END_SECONDS = 3


def serve(
    store: str,
    address: str,
    port: int,
    access: Access,
    limits: Limits,
    *,
    most_nbytes: int,
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM, and remove everything that was uploaded.

    Args:
        store: location of the store, which may not exist yet.
        address: to listen on.
        port: 0 for any free one.
        access: who may use it.
        limits: of each process that reads an upload.
        most_nbytes: largest upload.
        ready: called with the address of the page once it accepts connections.

    Raises:
        HostError: the address cannot be listened on, or there is no folder for uploads.
    """
    listening = _listen(address, port)
    folder = ServerFolder()
    try:
        service = Service(StoredRuns(store_location(store)), Workloads(folder.path, limits), most_nbytes)
        config = uvicorn.Config(
            create_application(service, access),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_END_SECONDS,
        )
        server = uvicorn.Server(config)
        _end_at_signals(server)
        host = f"[{address}]" if ":" in address else address
        ready(f"http://{host}:{listening.getsockname()[1]}/")
        server.run(sockets=[listening])
    finally:
        listening.close()
        folder.remove()


def _end_at_signals(server: uvicorn.Server) -> None:
    """Let the server end at signals, also before it handles them itself, and after it has ended.

    An exception in a signal handler could be lost, or leave the uploads behind.
    """

    def end(_number: int, _frame: object) -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def _listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        HostError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise HostError(
            f"cannot listen: {error.strerror}",
            where=f"{address}, port {port}",
            remedy="choose another --port or --listen",
        ) from None
    return listening
