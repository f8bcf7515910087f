"""Read the section ``design`` of a sweep file: one design, or a list of them.

The factors of a design are settings with lists or ranges of values, alone or in groups.
"""

import math
from collections.abc import Iterator, Sequence

from cephfit.core.units import parse_nbytes
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration, as_yaml
from cephfit.core.yaml_lines import Located
from cephfit.sweep import factorial_design
from cephfit.sweep.declaration.file_settings import NAME, SETTING_PARTS, SettingPlace, setting_places
from cephfit.sweep.factorial_design import (
    DEFAULT_LEVEL,
    Design,
    DesignKind,
    Factor,
    Level,
    Row,
    Sampler,
    Search,
    Span,
    as_name,
    configuration_of,
)

_SPAN = ("low", "high", "scale", "step")
_SCALES = ("linear", "log")
_SMALL_STEP = 4096
"""Default step of a range of sizes in bytes, where the range allows it."""


def read_factors(body: Located, accepted: tuple[str, ...], *, spans: bool) -> tuple[Factor, ...]:
    """Return the factors of a design: each setting under ``settings``, and each group under ``factors``.

    Args:
        body: the design.
        accepted: keys of settings that risk data and are applied nevertheless.
        spans: whether this kind of design accepts ranges.

    Raises:
        InputError: names file and line.
    """
    parts = body.mapping()
    factors: list[Factor] = []
    places: list[SettingPlace] = []
    if "settings" in parts:
        single = list(setting_places(parts["settings"].mapping(SETTING_PARTS)))
        keys = [place.key for place in single]
        for place in single:
            name = place.key if keys.count(place.key) == 1 else f"{place.scope}-{place.key}"
            factors.append(_single(as_name(name), place, accepted, spans=spans))
        places += single
    for name, group in (parts["factors"].mapping() if "factors" in parts else {}).items():
        if not NAME.fullmatch(name):
            group.refuse(
                f"{name!r} cannot be a factor's name", "use at most 40 of a to z, A to Z, 0 to 9, -, _ and ."
            )
        together = list(setting_places(group.mapping(SETTING_PARTS)))
        factors.append(_group(name, group, together, accepted, spans=spans))
        places += together
    if not factors:
        body.refuse("this design has no factors", "add `settings:` with a list of values for each key")
    _each_once(body, factors, places)
    return tuple(factors)


def _each_once(body: Located, factors: list[Factor], places: list[SettingPlace]) -> None:
    where = [(place.partition, place.scope, place.key) for place in places]
    for place in places:
        if where.count((place.partition, place.scope, place.key)) > 1:
            place.entry.refuse(f"{place.key} is varied twice by one design")
    names = [factor.name for factor in factors]
    for name in names:
        if names.count(name) > 1:
            body.refuse(f"two factors have the name {name}", "give the group under `factors` another name")


def _single(name: str, place: SettingPlace, accepted: tuple[str, ...], *, spans: bool) -> Factor:
    if isinstance(place.entry.value, dict):
        if not spans:
            place.entry.refuse(
                f"{place.key} has a range, which this kind of design does not accept", "write a list of values"
            )
        return Factor(name, (), _span(place, accepted))
    return Factor(name, _factor_levels(place, accepted))


def _group(
    name: str, group: Located, places: list[SettingPlace], accepted: tuple[str, ...], *, spans: bool
) -> Factor:
    if not places:
        group.refuse(f"the factor {name} has no settings")
    if len(places) == 1:
        return _single(name, places[0], accepted, spans=spans)
    columns = [_factor_levels(place, accepted) for place in places]
    if len({len(column) for column in columns}) > 1:
        counts = ", ".join(f"{p.key} {len(c)}" for p, c in zip(places, columns, strict=True))
        group.refuse(f"the settings of one factor must have the same number of values: {counts}")
    levels = [
        Level(
            "+".join(dict.fromkeys(level.label for level in row if not level.is_default)) or DEFAULT_LEVEL,
            tuple(setting for level in row for setting in level.settings),
        )
        for row in zip(*columns, strict=True)
    ]
    return Factor(name, tuple(levels))


def _factor_levels(place: SettingPlace, accepted: tuple[str, ...]) -> tuple[Level, ...]:
    entries = place.entry.items()
    if not entries:
        place.entry.refuse(f"{place.key} has no values")
    levels = []
    for item in entries:
        value = item.scalar()
        if value == DEFAULT_LEVEL:
            levels.append(Level(DEFAULT_LEVEL, ()))
        else:
            levels.append(Level(as_yaml(value), (place.setting(value, accepted),)))
    return tuple(levels)


def _span(place: SettingPlace, accepted: tuple[str, ...]) -> Span:
    parts = place.entry.mapping(_SPAN, required=("low", "high"))
    low, high = _number(parts["low"]), _number(parts["high"])
    is_size = isinstance(parts["low"].value, str)
    is_log = "scale" in parts and parts["scale"].word(_SCALES) == "log"
    if high <= low:
        parts["high"].refuse(f"the range of {place.key} ends before it begins", "low must be less than high")
    if is_log and low <= 0:
        parts["low"].refuse("a logarithmic range must begin above 0", "begin above 0, or scale: linear")
    for end in (parts["low"], parts["high"]):
        place.setting(end.scalar(), accepted)
    step = _number(parts["step"]) if "step" in parts else _step(low, high, is_size=is_size)
    if step < 0 or step > high - low:
        parts["step"].refuse(f"no two values of {place.key} are {step:g} apart")
    return Span(place.partition, place.scope, place.key, low, high, is_log=is_log, step=step, is_size=is_size)


def _step(low: float, high: float, *, is_size: bool) -> float:
    """Return the default step: whole numbers stay whole; sizes are multiples of a block if possible."""
    if is_size:
        return float(_SMALL_STEP if low % _SMALL_STEP == 0 and high - low >= 64 * _SMALL_STEP else 1)
    return 1.0 if low == int(low) and high == int(high) and high - low >= 2 else 0.0


def _number(entry: Located) -> float:
    value = entry.scalar()
    if isinstance(value, str):
        return float(parse_nbytes(value, where=entry.where))
    if isinstance(value, bool):
        entry.refuse(f"{entry.what} must be a number or a size")
    return float(value)


_COMMON = ("kind", "name", "factors", "settings")
_WORDS: dict[DesignKind, tuple[str, ...]] = {
    DesignKind.ONE_AT_A_TIME: (),
    DesignKind.COMBINATIONS: ("names",),
    DesignKind.PRODUCT: (),
    DesignKind.SCREENING: ("runs", "foldover"),
    DesignKind.SAMPLE: ("points", "method", "seed"),
    DesignKind.OPTIMISE: ("trials", "batch", "startup", "seed", "sampler", "cell", "direction"),
}
_PREFIX = {
    DesignKind.COMBINATIONS: "combination",
    DesignKind.PRODUCT: "product",
    DesignKind.SCREENING: "screen",
    DesignKind.SAMPLE: "point",
    DesignKind.OPTIMISE: "trial",
}
_MAX_ROWS = 1000
_METHODS = ("latin-hypercube", "sobol")


def read_designs(
    entry: Located | None, accepted: tuple[str, ...], written: Sequence[Configuration]
) -> tuple[tuple[Configuration, ...], tuple[Design, ...], Search | None]:
    """Return all configurations of a sweep: those of ``configurations``, then those of its designs.

    Args:
        entry: the section, None where the file has none.
        accepted: keys of settings that risk data and are applied nevertheless.
        written: the configurations of the section ``configurations``.

    Returns:
        The configurations, the designs, and the task of the optimiser if the file has one.

    Raises:
        InputError: names file and line.
    """
    if entry is None:
        return tuple(written), (), None
    found = {c.name: c for c in written}
    designs: list[Design] = []
    search: Search | None = None
    for body in entry.items() if isinstance(entry.value, list) else [entry]:
        parts = body.mapping(required=("kind",))
        kind = DesignKind(parts["kind"].word(list(DesignKind)))
        body.mapping((*_COMMON, *_WORDS[kind]))
        factors = read_factors(body, accepted, spans=kind in (DesignKind.SAMPLE, DesignKind.OPTIMISE))
        prefix = _prefix(parts, kind)
        for factor in factors:
            if kind is not DesignKind.COMBINATIONS and len(set(factor.levels)) < len(factor.levels):
                body.refuse(f"{factor.name} has the same value twice")
        if kind is DesignKind.OPTIMISE:
            if search is not None:
                body.refuse("a sweep can have only one optimiser")
            search = _search(body, parts, Design(kind, prefix, factors, ()))
            designs.append(search.design)
            continue
        rows = list(_rows(body, parts, kind, prefix, factors))
        for row, configuration in rows:
            if row.configuration == DEFAULT_CONFIGURATION:
                continue
            if configuration.name in found:
                body.refuse(
                    f"two configurations would have the name {configuration.name}",
                    "give this design a different `name:`; its configurations' names begin with it",
                )
            found[configuration.name] = configuration
        designs.append(Design(kind, prefix, factors, tuple(row for row, _ in rows)))
    return tuple(found.values()), tuple(designs), search


def _prefix(parts: dict[str, Located], kind: DesignKind) -> str:
    if "name" not in parts:
        return _PREFIX.get(kind, "")
    prefix = parts["name"].text()
    if not NAME.fullmatch(prefix) or len(prefix) > factorial_design.MAX_NAME // 2:
        parts["name"].refuse(
            f"{prefix!r} cannot be the beginning of configurations' names",
            f"use at most {factorial_design.MAX_NAME // 2} of a to z, A to Z, 0 to 9, -, _ and .",
        )
    return prefix


def _rows(
    body: Located, parts: dict[str, Located], kind: DesignKind, prefix: str, factors: tuple[Factor, ...]
) -> Iterator[tuple[Row, Configuration]]:
    if kind is DesignKind.ONE_AT_A_TIME:
        for factor, level, levels in factorial_design.one_at_a_time(factors):
            name = factorial_design.level_name(factor, level)
            name = factorial_design.shortened(prefix, tail=f"-{name}") if prefix else name
            yield Row(name, levels), configuration_of(name, levels, factorial_design.sentence(factors, levels))
        return
    if kind is DesignKind.PRODUCT:  # counted first: a few lists may give more rows than memory can hold
        _refuse_too_many(body, kind, math.prod(len(factor.levels) for factor in factors))
    rows = _levels(body, parts, kind, factors)
    _refuse_too_many(body, kind, len(rows))
    named_by_levels = kind in (DesignKind.PRODUCT, DesignKind.COMBINATIONS) and "name" not in parts
    given = _given_names(parts, len(rows))
    labels = given or factorial_design.row_names(prefix, factors, rows, numbered=not named_by_levels)
    for label, levels in zip(labels, rows, strict=True):
        yield Row(label, levels), configuration_of(label, levels, factorial_design.sentence(factors, levels))


def _refuse_too_many(body: Located, kind: DesignKind, n_rows: int) -> None:
    if n_rows > _MAX_ROWS:
        body.refuse(
            f"this {kind} has {n_rows} configurations, and at most {_MAX_ROWS} are allowed",
            "use a screening or a sample, which cover a large space with few configurations",
        )


def _levels(
    body: Located, parts: dict[str, Located], kind: DesignKind, factors: tuple[Factor, ...]
) -> list[factorial_design.Levels]:
    if kind is DesignKind.PRODUCT:
        return factorial_design.product(factors)
    if kind is DesignKind.SCREENING:
        return _screening(body, parts, factors)
    if kind is DesignKind.SAMPLE:
        return _sample(body, parts, factors)
    if len({len(factor.levels) for factor in factors}) > 1:
        counts = ", ".join(f"{factor.name} {len(factor.levels)}" for factor in factors)
        body.refuse(
            f"the settings of combinations must have the same number of values: {counts}",
            "give every setting the same number of values; write `default` where a setting stays unchanged",
        )
    return factorial_design.combinations(factors)


def _screening(
    body: Located, parts: dict[str, Located], factors: tuple[Factor, ...]
) -> list[factorial_design.Levels]:
    for factor in factors:
        if len(factor.levels) != 2:
            body.refuse(
                f"a screening needs two values of every factor; {factor.name} has {len(factor.levels)}",
                "choose the two ends of the useful range, such as [default, 512K]",
            )
    runs = factorial_design.screening_runs(len(factors))
    if "runs" in parts:
        runs = int(parts["runs"].word([str(n) for n in factorial_design.SCREENING_RUNS]))
    if runs is None or runs - 1 < len(factors):
        most = factorial_design.SCREENING_RUNS[-1] - 1
        body.refuse(f"{runs or 'no'} rows cannot screen {len(factors)} factors", f"at most {most} factors")
    return factorial_design.screening(factors, runs, foldover="foldover" in parts and parts["foldover"].truth())


def _sample(
    body: Located, parts: dict[str, Located], factors: tuple[Factor, ...]
) -> list[factorial_design.Levels]:
    body.mapping(required=("points", "seed"))
    points, seed = parts["points"].whole(least=2), parts["seed"].whole()
    if points > _MAX_ROWS:
        parts["points"].refuse(f"{points} points are too many", f"at most {_MAX_ROWS}")
    method = parts["method"].word(_METHODS) if "method" in parts else _METHODS[0]
    if method == "sobol":
        if points & (points - 1):
            parts["points"].refuse(
                f"Sobol' points are balanced in powers of two, and {points} is not one",
                "write 8, 16, 32 ..., or method: latin-hypercube",
            )
        rows = factorial_design.sobol(factors, points, seed)
    else:
        rows = factorial_design.latin_hypercube(factors, points, seed)
    return list(dict.fromkeys(rows))  # with few values per factor, points may coincide


def _given_names(parts: dict[str, Located], n_rows: int) -> list[str]:
    if "names" not in parts:
        return []
    given = []
    for item in parts["names"].items():
        text = str(item.value)
        if not NAME.fullmatch(text) or text == DEFAULT_CONFIGURATION:
            item.refuse(
                f"{text!r} cannot be the name of a combination",
                f"use at most {factorial_design.MAX_NAME} of a to z, A to Z, 0 to 9, -, _ and .; "
                f"{DEFAULT_CONFIGURATION} is the default",
            )
        given.append(text)
    if len(given) != n_rows or len(set(given)) != n_rows:
        parts["names"].refuse(f"{len(set(given))} different names for {n_rows} combinations")
    return given


def _search(body: Located, parts: dict[str, Located], design: Design) -> Search:
    body.mapping(required=("trials", "seed"))
    trials = parts["trials"].whole(least=1)
    if trials > _MAX_ROWS:
        parts["trials"].refuse(f"{trials} trials are too many", f"at most {_MAX_ROWS}")
    direction = parts["direction"].word(("maximise", "minimise")) if "direction" in parts else "maximise"
    return Search(
        design=design,
        trials=trials,
        batch=min(trials, parts["batch"].whole(least=1) if "batch" in parts else 4),
        startup=parts["startup"].whole(least=1) if "startup" in parts else min(10, max(2, trials // 3)),
        seed=parts["seed"].whole(),
        sampler=Sampler(parts["sampler"].word(list(Sampler))) if "sampler" in parts else Sampler.TPE,
        cell=Cell.parse(parts["cell"].text(), where=parts["cell"].where) if "cell" in parts else None,
        is_maximised=direction == "maximise",
    )
