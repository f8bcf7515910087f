"""Which cells a sweep file measures, and under which loads."""

from collections.abc import Mapping
from dataclasses import dataclass

from cephfit.cells import CELLS, SIZE_BINS, Cell, Pattern
from cephfit.measurement import Load, Measurement
from cephfit.sweep.declaration.file_settings import NAME
from cephfit.sweep.yaml_lines import Located, nearest

SHAPE = ("iodepth", "clients", "read_pct", "rate_iops", "rate")
"""Words of a load that ``measurement`` has too."""
MOST_CLIENTS = 1024
_LOAD = (*SHAPE, "sizes", "patterns")


@dataclass(frozen=True, slots=True)
class Shape:
    """The words of a load as they stand in a file; None where they do not. See ``model.Load``."""

    iodepth: int | None
    n_clients: int | None
    read_pct: int | None
    rate_iops: int | None
    rate_nbytes_per_s: int | None


def read_cells(parts: Mapping[str, Located]) -> tuple[Cell, ...]:
    """The cells that ``sizes`` and ``patterns`` name, in the vocabulary's order; all where they are left out.

    Raises:
        InputError: names file and line.
    """
    sizes = _words(parts.get("sizes"), "size", [b.name for b in SIZE_BINS])
    patterns = _words(parts.get("patterns"), "pattern", list(Pattern))
    return tuple(c for c in CELLS if c.size.name in sizes and c.pattern.value in patterns)


def read_shape(parts: Mapping[str, Located]) -> Shape:
    """The words of ``SHAPE``.

    Raises:
        InputError: names file and line.
    """
    n_clients = parts["clients"].whole(least=1, most=MOST_CLIENTS) if "clients" in parts else None
    read_pct = parts["read_pct"].whole() if "read_pct" in parts else None
    if read_pct is not None and not 1 <= read_pct <= 99:
        parts["read_pct"].refuse(
            f"a mix has 1 to 99 per cent of reads, not {read_pct}",
            "leave it out: the patterns read and randread only read, write and randwrite only write",
        )
    if "rate" in parts and "rate_iops" in parts:
        parts["rate"].refuse("rate and rate_iops limit the same thing", "keep one of the two")
    rate = parts["rate"].nbytes() if "rate" in parts else None
    if rate is not None and rate < 1:
        parts["rate"].refuse("a rate must be more than zero", "write bytes per second of each client, like 10M")
    return Shape(
        iodepth=parts["iodepth"].whole(least=1) if "iodepth" in parts else None,
        n_clients=n_clients,
        read_pct=read_pct,
        rate_iops=parts["rate_iops"].whole(least=1) if "rate_iops" in parts else None,
        rate_nbytes_per_s=rate,
    )


def read_loads(entry: Located | None, measurement: Measurement) -> tuple[Load, ...]:
    """The section ``measurement.loads``: a name to a shape.

    Args:
        entry: the section; None where there is none.
        measurement: what the loads are laid beside.

    Raises:
        InputError: names file and line.
    """
    if entry is None:
        return ()
    loads: list[Load] = []
    for name, body in entry.mapping().items():
        if not NAME.fullmatch(name):
            body.refuse(
                f"{name!r} cannot be a load's name", "use at most 40 of a to z, A to Z, 0 to 9, -, _ and ."
            )
        parts = body.mapping(_LOAD)
        if not any(word in parts for word in SHAPE):
            body.refuse(f"load {name} is the measurement's own", f"it needs one of {', '.join(SHAPE)}")
        _keep_one_rate(parts, measurement, body)
        shape = read_shape(parts)
        load = Load(
            name,
            shape.iodepth,
            shape.n_clients,
            shape.read_pct,
            shape.rate_iops,
            shape.rate_nbytes_per_s,
            _own_cells(parts, measurement, body),
        )
        _refuse_twin(load, loads, measurement, body)
        loads.append(load)
    return tuple(loads)


def _own_cells(parts: Mapping[str, Located], measurement: Measurement, body: Located) -> tuple[Cell, ...] | None:
    if "sizes" not in parts and "patterns" not in parts:
        return None
    sizes = dict.fromkeys(c.size.name for c in measurement.cells)
    patterns = dict.fromkeys(c.pattern.value for c in measurement.cells)
    wanted_sizes = _words(parts.get("sizes"), "size of this measurement", list(sizes))
    wanted = _words(parts.get("patterns"), "pattern of this measurement", list(patterns))
    cells = tuple(c for c in measurement.cells if c.size.name in wanted_sizes and c.pattern.value in wanted)
    if not cells:
        body.refuse("this load has no cells")
    return cells


def _keep_one_rate(parts: Mapping[str, Located], measurement: Measurement, body: Located) -> None:
    if ("rate" in parts and measurement.rate_iops) or ("rate_iops" in parts and measurement.rate_nbytes_per_s):
        body.refuse(
            "the measurement limits the rate in another unit than this load, and both would hold",
            "write both as rate, or both as rate_iops",
        )


def _refuse_twin(load: Load, others: list[Load], measurement: Measurement, body: Located) -> None:
    """Two loads of one shape would be two names for the same runs."""
    beside = measurement.under("")
    shapes = {"the measurement itself": beside.shape()}
    for other in others:
        shapes[other.name] = _shape_beside(other, beside)
    twin = next((name for name, shape in shapes.items() if shape == _shape_beside(load, beside)), None)
    if twin is not None:
        body.refuse(f"load {load.name} is the same as {twin}", "leave it out, or change what it is to differ in")


def _shape_beside(load: Load, measurement: Measurement) -> dict[str, object]:
    said = load.to_json()
    names = {"clients": "n_clients"}
    return {key: said.get(names.get(key, key), value) for key, value in measurement.shape().items()}


def _words(entry: Located | None, what: str, right: list[str]) -> list[str]:
    """Words of a list, all of ``right`` where the list is left out."""
    if entry is None:
        return list(right)
    words: list[str] = []
    for item in entry.items():
        word = str(item.value)
        if word not in right:
            item.refuse(f"{word!r} is not a {what}", nearest(word, right))
        if word in words:
            item.refuse(f"{what} {word} is given twice")
        words.append(word)
    if not words:
        entry.refuse(f"no {what} at all", f"choose from: {', '.join(right)}")
    return words
