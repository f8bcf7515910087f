"""`cephfit serve`: the web page and its HTTP API."""

import ipaddress
import os
import re
import secrets
from pathlib import Path

import click

from cephfit.cli.options.common_options import Finite, store_option
from cephfit.core.errors import HostError, InputError
from cephfit.core.optional_modules import optional_module
from cephfit.core.units import GIB, KIB, MIB, format_nbytes

_PORT = 8765
_LEAST_TOKEN = 16
_MOST_MINUTES = 7 * 24 * 60
_MOST_NBYTES = 1 << 60
"""Limits of a process are numbers of 64 bits."""
_HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": 1024 * GIB}


def _size(_context: click.Context, parameter: click.Parameter, value: str) -> int:
    """Parse ``4G``; sizes are powers of two."""
    found = re.fullmatch(r"(\d{1,12})([KMGT]?)", value.upper())
    if found is None or int(found[1]) == 0:
        raise click.BadParameter(f"{value!r} is not a size such as 500M or 4G.", param=parameter)
    nbytes = int(found[1]) * _UNITS[found[2]]
    if nbytes > _MOST_NBYTES:
        raise click.BadParameter(f"{value!r} is more than {format_nbytes(_MOST_NBYTES)}.", param=parameter)
    return nbytes


def _host_names(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _HOST_NAME.fullmatch(value):
            raise click.BadParameter(f"{value!r} is not a host name such as storage.example.", param=parameter)
    return values


@click.command("serve", short_help="A local web page: upload traces, get answers, watch sweeps.")
@store_option
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="Port; 0: any free one."
)
@click.option(
    "--token",
    envvar="CEPHFIT_SERVE_TOKEN",
    show_envvar=True,
    metavar="TOKEN",
    help="Token that every user must have. Other users of this machine see it in the list of processes, unless "
    "it comes from the environment.  [default: none on 127.0.0.1, else a random one, which is printed]",
)
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    callback=_host_names,
    metavar="NAME",
    help="Name under which browsers reach the server, next to its addresses and localhost. Repeatable.",
)
@click.option(
    "--max-upload", default="4G", show_default=True, callback=_size, metavar="SIZE", help="Largest upload."
)
@click.option(
    "--max-memory",
    default="4G",
    show_default=True,
    callback=_size,
    metavar="SIZE",
    help="Largest address space of the process that reads an upload.",
)
@click.option(
    "--max-minutes",
    type=Finite(min=0, min_open=True, max=_MOST_MINUTES),
    default=30,
    show_default=True,
    metavar="N",
    help="Longest time for reading an upload.",
)
def command(
    store: str,
    listen: str,
    port: int,
    token: str | None,
    host_names: tuple[str, ...],
    max_upload: int,
    max_memory: int,
    max_minutes: float,
) -> None:
    """Serve a web page, and the same as an HTTP API.

    Upload a trace, see what the workload does, choose a run of STORE or a CSV file of baselines, and get the
    answer of `cephfit map`. Browse the runs, and watch a sweep while it is measured.

    The page is for you alone: it listens on 127.0.0.1. On any other address it needs a token. It changes no
    cluster, and writes nothing into STORE. Ends with Ctrl-C; uploads are then removed.

    The API is described in /api/openapi.json.
    """
    for module in ("fastapi", "uvicorn", "python_multipart"):
        optional_module(module, where="cephfit serve")
    from cephfit.server.access_control import Access, known_names
    from cephfit.server.application import serve
    from cephfit.server.worker_process import TOKEN_VARIABLE, Limits

    is_local = _is_loopback(listen)
    if token is not None and len(token) < _LEAST_TOKEN:
        raise InputError(
            f"the token has fewer than {_LEAST_TOKEN} characters",
            where="--token",
            remedy="omit it to get a random one",
        )
    if not _is_there(store):
        click.echo(
            f"{store}: there is no store of results here yet; the page shows runs as soon as `cephfit sweep run` "
            "or `cephfit import` has created it",
            err=True,
        )
    os.environ.pop(TOKEN_VARIABLE, None)
    generated = "" if token or is_local else secrets.token_urlsafe(24)
    access = Access(token or generated, is_local, known_names(host_names))

    def ready(url: str) -> None:
        click.echo(f"cephfit serves {url}; end it with Ctrl-C")
        if generated:
            click.echo(f"token: {generated}")

    serve(
        store,
        listen,
        port,
        access,
        Limits(seconds=60 * max_minutes, memory_nbytes=max_memory),
        most_nbytes=max_upload,
        ready=ready,
    )


def _is_there(store: str) -> bool:
    """Return whether a file is a store; a sweep may create it later. A database server is not asked.

    Raises:
        StoreError: it is a folder, or a file that is no store.
    """
    from cephfit.core.errors import MissingStoreError
    from cephfit.results.store.sample_store import Store

    if "://" in store:
        return True
    try:
        with Store.open(Path(store).expanduser()):
            return True
    except MissingStoreError:
        return False


def _is_loopback(listen: str) -> bool:
    """Return whether an address to listen on is of this machine only.

    Raises:
        HostError: it is not an address.
    """
    if listen == "localhost":
        return True
    try:
        return ipaddress.ip_address(listen).is_loopback
    except ValueError:
        raise HostError(
            f"{listen!r} is not an address",
            where="--listen",
            remedy="give an address such as 127.0.0.1 or 0.0.0.0",
        ) from None
