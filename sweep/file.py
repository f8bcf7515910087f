"""Sweep files: YAML to a frozen ``Sweep``.

Every error names the file and line, the wrong word and the nearest right one. See ``sweeps/`` for examples.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from cephfit import sweeps
from cephfit.cells import CELLS, SIZE_BINS, Pattern
from cephfit.configuration import DEFAULT_CONFIGURATION, Configuration, Partition, Setting, Value
from cephfit.errors import InputError
from cephfit.sweep.model import CacheCondition, Measurement, Sweep
from cephfit.sweep.risk import risk_of
from cephfit.sweep.yaml_lines import Located, nearest, read_yaml
from cephfit.units import format_nbytes

SCHEMA_VERSION = 1

_TOP = ("schema_version", "name", "description", "configurations", "measurement", "accept_risk")
_CEPH_SECTIONS = ("global", "osd", "mon", "mgr", "client")
_SCOPES = {Partition.POOL: ("pool",), Partition.GREATER: ("osd_disk", "client_disk")}
_CONFIGURATION = ("why", "pool", "image", "ceph", "greater")
_MEASUREMENT = (
    *("sizes", "patterns", "clients", "volume_size", "repeats", "ramp_seconds", "run_seconds"),
    *("ioengine", "iodepth", "direct", "cache", "seed", "max_attempts"),
)
_REQUIRED = ("clients", "volume_size", "repeats", "run_seconds", "seed")
_SYNCHRONOUS = ("sync", "psync", "pvsync", "pvsync2")
_IOENGINES = ("libaio", "io_uring", "posixaio", "rbd", *_SYNCHRONOUS)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_MASKED_SECTION = re.compile(r"(global|osd|mon|mgr|client)(\.[A-Za-z0-9_-]+)?(/[a-z]+:[A-Za-z0-9_.-]+)?")
_MAX_CLIENTS = 1024


def bundled_sweeps() -> Iterator[str]:
    """Names of the sweep files that come with cephfit."""
    folder = Path(str(sweeps.__file__)).parent
    return (path.stem for path in sorted(folder.glob("*.yaml")))


def bundled_sweep(name: str) -> Path:
    """Path of a sweep file that comes with cephfit, such as ``quick``.

    Raises:
        InputError: there is none of this name.
    """
    names = tuple(bundled_sweeps())
    if name not in names:
        raise InputError(
            f"there is no file {name!r}, and no bundled sweep of this name", remedy=nearest(name, names)
        )
    return Path(str(sweeps.__file__)).parent / f"{name}.yaml"


def find_sweep(text: str) -> Path:
    """A path as it is, or the name of a bundled sweep.

    Raises:
        InputError: neither.
    """
    if Path(text).is_file():
        return Path(text)
    if Path(text).is_dir() and text not in bundled_sweeps():
        raise InputError("this is a folder", where=text, remedy="name a sweep file in it")
    if "/" not in text and not text.endswith((".yaml", ".yml")):
        return bundled_sweep(text)
    raise InputError(f"there is no sweep file {text}", remedy="`cephfit sweep list` shows the ready ones")


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises:
        InputError: it cannot be read or used; names file and line.
    """
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InputError(f"not text in UTF-8 (byte {error.start})", where=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot read the sweep file: {error.strerror}", where=str(path)) from None
    return parse_sweep(text, file=str(path))


def parse_sweep(text: str, *, file: str) -> Sweep:
    """Read the text of a sweep file.

    Args:
        text: YAML.
        file: its name, for messages.

    Raises:
        InputError: names file and line.
    """
    top = read_yaml(text, file=file)
    entries = top.mapping(_TOP, required=("schema_version", "name", "measurement"))
    version = entries["schema_version"]
    if version.value != SCHEMA_VERSION:
        version.refuse(
            f"schema_version {version.value!r} is not known", f"this cephfit reads schema_version {SCHEMA_VERSION}"
        )
    name = entries["name"]
    if not _NAME.fullmatch(name.text()):
        name.refuse(f"{name.value!r} cannot be a sweep's name", "letters, digits, - _ . and at most 40 of them")
    accepted = _accept_risk(entries.get("accept_risk"))
    configurations = _configurations(entries.get("configurations"), accepted)
    measurement = _measurement(entries["measurement"])
    return Sweep(
        name=name.text(),
        description=entries["description"].text() if "description" in entries else "",
        configurations=configurations,
        measurement=measurement,
        accept_risk=accepted,
        text=text,
        digest=_digest(configurations, measurement),
    )


def _accept_risk(entry: Located | None) -> tuple[str, ...]:
    return tuple(item.text() for item in entry.items()) if entry is not None else ()


def _configurations(entry: Located | None, accepted: tuple[str, ...]) -> tuple[Configuration, ...]:
    default = Configuration(DEFAULT_CONFIGURATION, why="Ceph's defaults")
    others: list[Configuration] = []
    for name, body in (entry.mapping() if entry is not None else {}).items():
        if not _NAME.fullmatch(name):
            body.refuse(
                f"{name!r} cannot be a configuration's name", "letters, digits, - _ . and at most 40 of them"
            )
        parts = body.mapping(_CONFIGURATION)
        settings = tuple(sorted(_settings(parts, accepted), key=lambda s: (s.partition, s.scope, s.key)))
        configuration = Configuration(name, settings, parts["why"].text() if "why" in parts else "")
        if name != DEFAULT_CONFIGURATION:
            others.append(configuration)
        elif settings:
            body.refuse(
                f"{DEFAULT_CONFIGURATION} is the default and has no settings",
                "give these settings a configuration of another name",
            )
        else:
            default = configuration
    return (default, *others)


def _settings(parts: dict[str, Located], accepted: tuple[str, ...]) -> Iterator[Setting]:
    for word in ("pool", "image"):
        if word in parts:
            yield from _scope(parts[word], Partition.POOL, word, accepted)
    if "ceph" in parts:
        for section, body in parts["ceph"].mapping().items():
            if not _MASKED_SECTION.fullmatch(section):
                body.refuse(f"{section!r} is no section of Ceph's configuration", nearest(section, _CEPH_SECTIONS))
            yield from _scope(body, Partition.CEPH, section, accepted)
    if "greater" in parts:
        for scope, body in parts["greater"].mapping(_SCOPES[Partition.GREATER]).items():
            yield from _scope(body, Partition.GREATER, scope, accepted)


def _scope(body: Located, partition: Partition, scope: str, accepted: tuple[str, ...]) -> Iterator[Setting]:
    for key, value in body.mapping().items():
        # Ceph reads "osd op threads", "osd-op-threads" and "osd_op_threads" as one option.
        canonical = re.sub(r"[ -]", "_", key) if partition is Partition.CEPH else key
        if canonical != key and canonical in body.value:
            value.refuse(f"{key!r} stands twice, also as {canonical!r}")
        setting = Setting(partition, scope, canonical, value.scalar())
        risk = risk_of(setting)
        if risk is not None and canonical not in accepted:
            value.refuse(
                f"{setting} risks data: {risk.why}",
                f"if that is wanted on this cluster, add `accept_risk: [{canonical}]` to the file",
            )
        yield setting


def _measurement(entry: Located) -> Measurement:
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


def _meaning(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _digest(configurations: tuple[Configuration, ...], measurement: Measurement) -> str:
    """SHA-256 of what is measured and how: names of people's choosing for the whole, words and layout stay out."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "configurations": {
            c.name: [[s.partition.value, s.scope, s.key, _meaning(s.value)] for s in c.settings]
            for c in configurations
        },
        **measurement.to_json(),
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
