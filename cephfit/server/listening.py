"""Run the server until it is interrupted."""

import signal
import socket
from collections.abc import Callable

import uvicorn

from cephfit.core.errors import HostError
from cephfit.server.access_control import Access
from cephfit.server.application import create_application
from cephfit.server.limited_process import Limits
from cephfit.server.server_folder import ServerFolder
from cephfit.server.service import Service, store_location
from cephfit.server.stored_runs import StoredRuns
from cephfit.server.workloads import Workloads

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
    """Raises:
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
