"""The section of a sweep file that says how every cell is measured."""

from cephfit.cells import CELLS, SIZE_BINS, Pattern
from cephfit.sweep.model import CacheCondition, Measurement
from cephfit.sweep.yaml_lines import Located, nearest
from cephfit.units import format_nbytes

_MEASUREMENT = (
    *("sizes", "patterns", "clients", "volume_size", "repeats", "ramp_seconds", "run_seconds"),
    *("ioengine", "iodepth", "direct", "cache", "seed", "max_attempts"),
)
_REQUIRED = ("clients", "volume_size", "repeats", "run_seconds", "seed")
_SYNCHRONOUS = ("sync", "psync", "pvsync", "pvsync2")
_IOENGINES = ("libaio", "io_uring", "posixaio", "rbd", *_SYNCHRONOUS)
_MAX_CLIENTS = 1024


def read_measurement(entry: Located) -> Measurement:
    """The section ``measurement``.

    Raises:
        InputError: names file and line.
    """
    parts = entry.mapping(_MEASUREMENT, required=_REQUIRED)
    sizes = _words(parts.get("sizes"), "size", [b.name for b in SIZE_BINS])
    patterns = _words(parts.get("patterns"), "pattern", list(Pattern))
    cells = tuple(c for c in CELLS if c.size.name in sizes and c.pattern.value in patterns)
    ioengine = parts["ioengine"].word(_IOENGINES) if "ioengine" in parts else "libaio"
    iodepth = parts["iodepth"].whole(least=1) if "iodepth" in parts else 1
    if ioengine in _SYNCHRONOUS and iodepth != 1:
        parts["iodepth"].refuse(
            f"the synchronous engine {ioengine} has one I/O in flight, iodepth {iodepth} would be a lie",
            "write iodepth: 1, or an asynchronous engine such as libaio",
        )
    n_clients = parts["clients"].whole(least=1)
    if n_clients > _MAX_CLIENTS:
        parts["clients"].refuse(f"{n_clients} clients are too many", f"at most {_MAX_CLIENTS}")
    volume_nbytes = parts["volume_size"].nbytes()
    largest = max(c.size.benchmark_nbytes for c in cells)
    if volume_nbytes < largest or volume_nbytes % largest:
        parts["volume_size"].refuse(
            f"a volume of {parts['volume_size'].value} does not hold whole blocks of {format_nbytes(largest)}",
            f"make it a multiple of {format_nbytes(largest)}",
        )
    return Measurement(
        cells=cells,
        n_clients=n_clients,
        volume_nbytes=volume_nbytes,
        repeats=parts["repeats"].whole(least=1),
        ramp_seconds=parts["ramp_seconds"].seconds() if "ramp_seconds" in parts else 0.0,
        run_seconds=parts["run_seconds"].seconds(positive=True),
        ioengine=ioengine,
        iodepth=iodepth,
        direct=parts["direct"].truth() if "direct" in parts else True,
        cache=CacheCondition(parts["cache"].word(list(CacheCondition)))
        if "cache" in parts
        else CacheCondition.COLD,
        seed=parts["seed"].whole(),
        max_attempts=parts["max_attempts"].whole(least=1) if "max_attempts" in parts else 3,
    )


def _words(entry: Located | None, what: str, right: list[str]) -> list[str]:
    """Words of a list, all of ``right`` where the list is left out."""
    if entry is None:
        return list(right)
    words: list[str] = []
    for item in entry.items():
        word = str(item.value)
        if word not in right:
            item.refuse(f"{word!r} is no {what}", nearest(word, right))
        if word in words:
            item.refuse(f"{what} {word} stands twice")
        words.append(word)
    if not words:
        entry.refuse(f"no {what} at all", f"choose from: {', '.join(right)}")
    return words
