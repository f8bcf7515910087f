"""The fio job file of one cell: one job section per client, started together by one process."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cephfit import templates
from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.core.values.measurement import DSYNC, RBD_OBJECT_NBYTES
from cephfit.measure.engine import CellRun

CONF_OPTION = "conf"
"""Path of the ceph.conf for ``ioengine=rbd``. This is not an option of fio; librados reads it from a variable."""


def render_job(run: CellRun) -> str:
    """Return the job file of a measurement.

    Sections are not grouped, so every client has separate figures. They run as threads of one process, so that all
    end with it.

    Raises:
        InputError: a client option that a job file cannot contain, or an I/O engine that cannot reach the client.
    """
    return _render("fio.j2", run)


def render_warming(run: CellRun) -> str:
    """Return the job file that reads every client's volume once.

    Raises:
        InputError: as ``render_job``.
    """
    return _render("fio_warm.j2", run)


def region_of(run: CellRun, client: Client) -> tuple[int, int]:
    """Return the offset and size, in bytes, of the part of a client's volume that a measurement uses.

    A short sequential run uses only one or two RBD objects, and so one or two OSDs. If every repeat began at the
    same place, the repeats would not show the effect of that choice. So each repeat begins at a different place in
    the first half of the volume, which is the same for all configurations of a round. Random runs use the whole
    volume.

    Sequential accesses that are not aligned to their own size begin one alignment later. Their region ends with a
    whole access: fio 3.33 writes beyond a region that does not.
    """
    base = int(client.fio_options.get("offset", 0))
    if run.cell.pattern.is_random:
        return base, client.nbytes
    block = run.cell.size.benchmark_nbytes
    unit = max(block, RBD_OBJECT_NBYTES)
    shift = run.measurement.run_as(run.cell).align_nbytes
    last = min(client.nbytes // 2, max(0, client.nbytes - shift - block) if shift else client.nbytes)
    start = run.seeds[client.name] % (last // unit + 1) * unit
    if not shift:
        return base + start, client.nbytes - start
    return base + start + shift, (client.nbytes - start - shift) // block * block


def ceph_conf(run: CellRun) -> str | None:
    """Return the ceph.conf of the clients that fio reaches through librbd; None where there is none.

    Raises:
        InputError: the clients have different files, but one process can use only one.
    """
    paths = {c.fio_options[CONF_OPTION] for c in run.clients if CONF_OPTION in c.fio_options}
    if len(paths) > 1:
        raise InputError(f"clients of one run need one ceph.conf, not {', '.join(sorted(paths))}")
    return next(iter(paths), None)


def escaped_filename(path: Path) -> str:
    """Escape a path for fio's ``filename``, where a colon separates files."""
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
        # fio's blockalign concerns random offsets only.
        align_nbytes=run.measurement.run_as(run.cell).align_nbytes if run.cell.pattern.is_random else 0,
        sync=run.measurement.run_as(run.cell).sync,
        clients=run.clients,
        seeds=run.seeds,
        own_options=(CONF_OPTION, "offset"),
        regions={client.name: region_of(run, client) for client in run.clients},
        milliseconds=lambda seconds: round(seconds * 1000),
    )


def _direction(run: CellRun) -> str:
    """Return fio's ``rw``. Of a mix, the cell determines only whether offsets are sequential or random."""
    if run.measurement.read_pct is None:
        return run.cell.pattern.value
    return "randrw" if run.cell.pattern.is_random else "rw"


def _rates(run: CellRun) -> list[tuple[str, str]]:
    """Return fio's rate limits. fio limits each direction separately, so a mix divides the limit between them."""
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
            f"client {client.name} is not an RBD image that fio can open through librbd",
            where="measurement.ioengine: rbd",
            remedy="write ioengine: libaio, or choose a target whose clients are reached through librbd",
        )
    if engine == "rbd" and run.measurement.sync == DSYNC:
        raise InputError(
            f"fio opens the image of client {client.name} through librbd, which has no writes that are durable "
            "when they end",
            where="measurement.sync: dsync",
            remedy="write sync: fsync",
        )
    shift = run.measurement.run_as(run.cell).align_nbytes
    if shift and client.nbytes < (least := run.cell.size.benchmark_nbytes + shift):
        raise InputError(
            f"the volume of client {client.name} has {client.nbytes} bytes, and one access that is not aligned to "
            f"its own size needs {least}",
            where="measurement.align",
            remedy="make the volume larger, or remove this size",
        )
