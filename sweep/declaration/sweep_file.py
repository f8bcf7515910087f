"""Read sweep files: YAML to a frozen ``Sweep``.

Every error names the file and line, the wrong word and the nearest right one. See ``sweeps/`` for examples.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cephfit import sweeps
from cephfit.core.errors import InputError
from cephfit.core.values.configuration import Configuration, as_yaml
from cephfit.core.values.measurement import MICRO, Measurement
from cephfit.core.yaml_lines import Located, nearest, read_yaml
from cephfit.sweep.declaration.file_design import read_designs
from cephfit.sweep.declaration.file_measurement import read_measurement
from cephfit.sweep.declaration.file_settings import (
    NAME,
    USE,
    expand_uses,
    fault_of_configuration,
    read_configurations,
    read_pools,
)
from cephfit.sweep.factorial_design import Search
from cephfit.sweep.sweep_plan import Decide, RaceFor, Stopping, Sweep

_WORDS = ("race", "decide", "margin_percent", "within_percent", "minimum", "confidence")


def read_stopping(entry: Located | None, repeats: int) -> Stopping | None:
    """Return the section ``stopping``, None where the file has none: then all repeats are measured.

    Raises:
        InputError: names file and line.
    """
    if entry is None:
        return None
    parts = entry.mapping(_WORDS)
    if not {"race", "within_percent"} & set(parts):
        entry.refuse("no rule for stopping is given", "add `race: profile`, `race: cells` or `within_percent: 5`")
    minimum = parts["minimum"].whole(least=2) if "minimum" in parts else 2
    if minimum >= repeats:
        entry.refuse(
            f"the first decision would come after {minimum} repeats, and the sweep has {repeats}",
            "repeats is the maximum: write more, such as the thesis's 9",
        )
    return Stopping(
        race=RaceFor(parts["race"].word(list(RaceFor))) if "race" in parts else None,
        decide=Decide(parts["decide"].word(list(Decide))) if "decide" in parts else Decide.BOTH,
        margin=_part(parts["margin_percent"], least=0.0) if "margin_percent" in parts else Stopping().margin,
        within=_part(parts["within_percent"], least=0.01) if "within_percent" in parts else None,
        minimum=minimum,
        confidence=_confidence(parts["confidence"]) if "confidence" in parts else Stopping().confidence,
    )


def _part(entry: Located, *, least: float) -> float:
    value = entry.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 100:
        entry.refuse(f"{entry.what} must be a percentage from {least:g} to 100, not {value!r}")
    return float(value) / 100


def _confidence(entry: Located) -> float:
    value = entry.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 <= value < 1:
        entry.refuse(f"a confidence must be a number from 0.5 to less than 1, not {value!r}", "such as 0.95")
    return float(value)


SCHEMA_VERSION = 1

_TOP = (
    "schema_version",
    "name",
    "description",
    "pools",
    "configurations",
    "design",
    "stopping",
    "gone_options",
    "measurement",
    "accept_risk",
)

_GONE = ("skip", "leave-out")
"""Values of ``gone_options``: skip a configuration with an option that the cluster lacks, or omit the option."""

_MOST_RUNS = 1_000_000
_READY_ONES = "`cephfit sweep list` shows the ready ones"


def bundled_sweeps() -> Iterator[str]:
    """Return the names of the sweep files that come with cephfit."""
    folder = Path(str(sweeps.__file__)).parent
    return (path.stem for path in sorted(folder.glob("*.yaml")))


def bundled_sweep(name: str) -> Path:
    """Return the path of a sweep file that comes with cephfit, such as ``quick``.

    Raises:
        InputError: no bundled sweep has this name.
    """
    names = tuple(bundled_sweeps())
    if name not in names:
        raise InputError(
            f"there is no file {name!r}, and no bundled sweep with this name", remedy=nearest(name, names)
        )
    return Path(str(sweeps.__file__)).parent / f"{name}.yaml"


def find_sweep(text: str) -> Path:
    """Return the path of a sweep file, from a path or the name of a bundled sweep.

    Raises:
        InputError: the text is neither.
    """
    if Path(text).is_file():
        return Path(text)
    if Path(text).is_dir() and text not in bundled_sweeps():
        raise InputError("this is a folder", where=text, remedy="name a sweep file in it")
    if "/" not in text and not text.endswith((".yaml", ".yml")):
        return bundled_sweep(text)
    raise InputError(f"there is no sweep file {text}", remedy=_READY_ONES)


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises:
        InputError: it cannot be read or used; names file and line.
    """
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"not text in UTF-8 (byte {error.start})",
            where=str(path),
            remedy=f"{_READY_ONES}; save your file as UTF-8",
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot read the sweep file: {error.strerror}", where=str(path), remedy=_READY_ONES
        ) from None
    return parse_sweep(text, file=str(path))


def parse_sweep(text: str, *, file: str, stored: bool = False) -> Sweep:
    """Read the text of a sweep file.

    Args:
        text: YAML.
        file: its name, for messages.
        stored: whether the text comes from a stored run. Rules that are newer than the run then do not apply.

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
    if not NAME.fullmatch(name.text()):
        name.refuse(
            f"{name.value!r} cannot be a sweep's name", "use at most 40 of a to z, A to Z, 0 to 9, -, _ and ."
        )
    accepted = _accept_risk(entries.get("accept_risk"))
    written = read_configurations(entries.get("configurations"), accepted)
    configurations, designs, search = read_designs(entries.get("design"), accepted, written)
    for configuration in configurations:
        if fault := fault_of_configuration(configuration):  # of a design: written ones are checked already
            entries["design"].refuse(f"{configuration.name}: {fault}")
    configurations = expand_uses(configurations, read_pools(entries.get("pools"), accepted), file=file)
    measurement = read_measurement(entries["measurement"], stored=stored)
    if not stored:
        n_configurations = len(configurations) + (search.trials if search is not None else 0)
        _refuse_endless(measurement, n_configurations, entries["measurement"].mapping()["repeats"])
    stopping = read_stopping(entries.get("stopping"), measurement.repeats)
    _refuse_contradictions(entries, measurement, search, stopping)
    further: dict[str, Any] = {}
    if search is not None:
        further["search"] = search.to_json()
    if stopping is not None:
        further["stopping"] = stopping.to_json()
    omits_gone_options = "gone_options" in entries and entries["gone_options"].word(_GONE) == _GONE[1]
    if omits_gone_options:
        further["gone_options"] = _GONE[1]
    return Sweep(
        name=name.text(),
        description=entries["description"].text() if "description" in entries else "",
        configurations=configurations,
        measurement=measurement,
        accept_risk=accepted,
        text=text,
        digest=_digest(configurations, measurement, further),
        designs=designs,
        search=search,
        stopping=stopping,
        omits_gone_options=omits_gone_options,
    )


def _refuse_contradictions(
    entries: Mapping[str, Located], measurement: Measurement, search: Search | None, stopping: Stopping | None
) -> None:
    """Refuse an optimiser or a race that contradicts another part of the file."""
    if search is not None and any(
        setting.key == USE
        for factor in search.design.factors
        for level in factor.levels
        for setting in level.settings
    ):
        entries["design"].refuse(
            "an optimiser cannot vary `use`", "vary the keys of the pool instead, such as `devices.class`"
        )
    if search is not None and stopping is not None:
        entries["stopping"].refuse(
            "an optimiser's trials cannot race", "remove `stopping` or the design `optimise` from the file"
        )
    for word, found in (("stopping", stopping), ("design", search)):
        if found is not None and measurement.engine == MICRO:
            entries[word].refuse(
                "rates of operations on files decide nothing yet: neither a race nor an optimiser uses them",
                f"remove {word}, or use engine: fio",
            )
    if search is not None and search.cell is not None and search.cell not in measurement.cells:
        entries["design"].refuse(f"the optimiser's objective {search.cell} is not one of the measured cells")


def _refuse_endless(measurement: Measurement, n_configurations: int, repeats: Located) -> None:
    """Refuse plans that are too large: the plan alone would take minutes and exhaust the machine's memory."""
    n_cells = sum(len(measurement.under(name).cells) for name in measurement.load_names)
    n_runs = n_configurations * n_cells * measurement.repeats
    if n_runs > _MOST_RUNS:
        repeats.refuse(
            f"{n_configurations} configurations in {n_cells} cells, each {measurement.repeats} times, "
            f"are {n_runs} runs, and at most {_MOST_RUNS} are allowed",
            "write fewer repeats, configurations, cells or loads",
        )


def _accept_risk(entry: Located | None) -> tuple[str, ...]:
    return tuple(item.text() for item in entry.items()) if entry is not None else ()


def _digest(
    configurations: tuple[Configuration, ...], measurement: Measurement, further: Mapping[str, Any]
) -> str:
    """Return the SHA-256 of configurations and measurement, without the sweep's name, descriptions and layout.

    A design counts only by its configurations. ``further`` is empty for sweeps that measure all configurations and
    repeats, so their digests equal those of earlier versions.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "configurations": {
            c.name: [[s.partition.value, s.scope, s.key, as_yaml(s.value)] for s in c.settings]
            for c in configurations
        },
        **measurement.to_json(),
        **further,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
