"""The fio job of one cell on all clients: one job section per client, started together by one process."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cephfit import templates
from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.core.values.measurement import RBD_OBJECT_NBYTES
from cephfit.measure.engine import CellRun

CONF_OPTION = "conf"
"""Not fio's own: path of the ceph.conf for ``ioengine=rbd``. fio has no option for it, librados a variable."""


def render_job(run: CellRun) -> str:
    """The job file of a measurement.

    Sections are not grouped (every client keeps its own figures) and run as threads of one process, so that the
    death of the process is the death of all of them.

    Raises:
        InputError: a client option that no job file can hold, or an engine that the client cannot be reached by.
    """
    return _render("fio.j2", run)


def render_warming(run: CellRun) -> str:
    """The job file that reads every client's volume once through.

    Raises:
        InputError: as ``render_job``.
    """
    return _render("fio_warm.j2", run)


def region_of(run: CellRun, client: Client) -> tuple[int, int]:
    """Offset and size, in bytes, of the part of a client's volume that a measurement uses.

    A short sequential run stays within an RBD object or two, and so on an OSD or two: which ones is luck that no
    repeat would show if every repeat began at the same place. So each begins at a place of its own in the first
    half of the volume, the same for all configurations of a round. Random runs use the whole volume.
    """
    base = int(client.fio_options.get("offset", 0))
    if run.cell.pattern.is_random:
        return base, client.nbytes
    unit = max(run.cell.size.benchmark_nbytes, RBD_OBJECT_NBYTES)
    start = run.seeds[client.name] % (client.nbytes // 2 // unit + 1) * unit
    return base + start, client.nbytes - start


def ceph_conf(run: CellRun) -> str | None:
    """The ceph.conf of the clients that fio reaches through librbd; None where there is none.

    Raises:
        InputError: they have different ones, which one process cannot have.
    """
    paths = {c.fio_options[CONF_OPTION] for c in run.clients if CONF_OPTION in c.fio_options}
    if len(paths) > 1:
        raise InputError(f"clients of one run need one ceph.conf, not {', '.join(sorted(paths))}")
    return next(iter(paths), None)


def escaped_filename(path: Path) -> str:
    """A path as fio's ``filename`` takes it: a colon would begin another file."""
    return str(path).replace(":", r"\:")


def _render(template: str, run: CellRun) -> str:
    for client in run.clients:
        _check(client, run)
    environment = Environment(
        loader=FileSystemLoader(Path(str(templates.__file__)).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(
        measurement=run.measurement,
        direction=_direction(run),
        rates=_rates(run),
        cell=run.cell,
        clients=run.clients,
        seeds=run.seeds,
        own_options=(CONF_OPTION, "offset"),
        regions={client.name: region_of(run, client) for client in run.clients},
        milliseconds=lambda seconds: round(seconds * 1000),
    )


def _direction(run: CellRun) -> str:
    """fio's ``rw``: of a mix the cell says only whether offsets are sequential or random."""
    if run.measurement.read_pct is None:
        return run.cell.pattern.value
    return "randrw" if run.cell.pattern.is_random else "rw"


def _rates(run: CellRun) -> list[tuple[str, str]]:
    """fio limits each direction by itself: of a mix each gets its part, so that the sum is the limit."""
    measurement = run.measurement
    rates = []
    for key, limit in (("rate_iops", measurement.rate_iops), ("rate", measurement.rate_nbytes_per_s)):
        if limit is not None and measurement.read_pct is None:
            rates.append((key, str(limit)))
        elif limit is not None and measurement.read_pct is not None:
            reads = max(1, round(limit * measurement.read_pct / 100))
            rates.append((key, f"{reads},{max(1, limit - reads)}"))
    return rates


def _check(client: Client, run: CellRun) -> None:
    for key, value in client.fio_options.items():
        if "\n" in key or "\n" in value or "=" in key:
            raise InputError(f"fio option {key!r} of client {client.name} cannot be written into a job file")
    engine = client.fio_options.get("ioengine", run.measurement.ioengine)
    if engine == "rbd" and "rbdname" not in client.fio_options:
        raise InputError(
            f"client {client.name} is not an RBD image that fio can open by itself",
            where="measurement.ioengine: rbd",
            remedy="write ioengine: libaio, or choose a target whose clients are reached through librbd",
        )
