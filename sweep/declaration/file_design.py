"""The section ``design`` of a sweep file: one design, or a list of them."""

import math
from collections.abc import Iterator, Sequence

from cephfit.cells import Cell
from cephfit.configuration import DEFAULT_CONFIGURATION, Configuration
from cephfit.sweep.declaration.file_factors import read_factors
from cephfit.sweep.declaration.file_settings import NAME
from cephfit.sweep.design import arrays, names
from cephfit.sweep.design.factor import Factor, configuration_of
from cephfit.sweep.design.model import Design, DesignKind, Row, Sampler, Search
from cephfit.sweep.yaml_lines import Located

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
    """All configurations of a sweep: those that are written out, then those of its designs.

    Args:
        entry: the section, None where the file has none.
        accepted: keys of settings that risk data and are wanted all the same.
        written: the section ``configurations``.

    Returns:
        The configurations, the designs, and the task of the optimiser where there is one.

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
                body.refuse(f"{factor.name} has a value twice")
        if kind is DesignKind.OPTIMISE:
            if search is not None:
                body.refuse("a sweep has one optimiser at most")
            search = _search(body, parts, Design(kind, prefix, factors, ()))
            designs.append(search.design)
            continue
        made = list(_rows(body, parts, kind, prefix, factors))
        for row, configuration in made:
            if row.configuration == DEFAULT_CONFIGURATION:
                continue
            if configuration.name in found:
                body.refuse(
                    f"two configurations would be called {configuration.name}",
                    "give this design a `name:` of its own; its configurations' names begin with it",
                )
            found[configuration.name] = configuration
        designs.append(Design(kind, prefix, factors, tuple(row for row, _ in made)))
    return tuple(found.values()), tuple(designs), search


def _prefix(parts: dict[str, Located], kind: DesignKind) -> str:
    if "name" not in parts:
        return _PREFIX.get(kind, "")
    prefix = parts["name"].text()
    if not NAME.fullmatch(prefix) or len(prefix) > names.MAX_NAME // 2:
        parts["name"].refuse(
            f"{prefix!r} cannot be the beginning of configurations' names",
            f"use at most {names.MAX_NAME // 2} of a to z, A to Z, 0 to 9, -, _ and .",
        )
    return prefix


def _rows(
    body: Located, parts: dict[str, Located], kind: DesignKind, prefix: str, factors: tuple[Factor, ...]
) -> Iterator[tuple[Row, Configuration]]:
    if kind is DesignKind.ONE_AT_A_TIME:
        for factor, level, levels in arrays.one_at_a_time(factors):
            name = names.level_name(factor, level)
            name = names.shortened(prefix, tail=f"-{name}") if prefix else name
            yield Row(name, levels), configuration_of(name, levels, names.sentence(factors, levels))
        return
    if kind is DesignKind.PRODUCT:  # counted before it is made: a few lists give more than memory holds
        _refuse_too_many(body, kind, math.prod(len(factor.levels) for factor in factors))
    rows = _levels(body, parts, kind, factors)
    _refuse_too_many(body, kind, len(rows))
    spoken = kind in (DesignKind.PRODUCT, DesignKind.COMBINATIONS) and "name" not in parts
    given = _given_names(parts, len(rows))
    labels = given or names.row_names(prefix, factors, rows, numbered=not spoken)
    for label, levels in zip(labels, rows, strict=True):
        yield Row(label, levels), configuration_of(label, levels, names.sentence(factors, levels))


def _refuse_too_many(body: Located, kind: DesignKind, n_rows: int) -> None:
    if n_rows > _MAX_ROWS:
        body.refuse(
            f"this {kind} has {n_rows} configurations, and at most {_MAX_ROWS} are allowed",
            "a screening or a sample covers much of a space with few of them",
        )


def _levels(
    body: Located, parts: dict[str, Located], kind: DesignKind, factors: tuple[Factor, ...]
) -> list[arrays.Levels]:
    if kind is DesignKind.PRODUCT:
        return arrays.product(factors)
    if kind is DesignKind.SCREENING:
        return _screening(body, parts, factors)
    if kind is DesignKind.SAMPLE:
        return _sample(body, parts, factors)
    if len({len(factor.levels) for factor in factors}) > 1:
        said = ", ".join(f"{factor.name} {len(factor.levels)}" for factor in factors)
        body.refuse(
            f"combinations take the first values together, the second together and so on: {said} values",
            "give every setting as many values, `default` where one is left as it is",
        )
    return arrays.combinations(factors)


def _screening(body: Located, parts: dict[str, Located], factors: tuple[Factor, ...]) -> list[arrays.Levels]:
    for factor in factors:
        if len(factor.levels) != 2:
            body.refuse(
                f"a screening needs two values of every factor; {factor.name} has {len(factor.levels)}",
                "take the two ends of what is worth trying, such as [default, 512K]",
            )
    runs = arrays.screening_runs(len(factors))
    if "runs" in parts:
        runs = int(parts["runs"].word([str(n) for n in arrays.SCREENING_RUNS]))
    if runs is None or runs - 1 < len(factors):
        most = arrays.SCREENING_RUNS[-1] - 1
        body.refuse(f"{runs or 'no'} rows cannot screen {len(factors)} factors", f"at most {most} factors")
    return arrays.screening(factors, runs, foldover="foldover" in parts and parts["foldover"].truth())


def _sample(body: Located, parts: dict[str, Located], factors: tuple[Factor, ...]) -> list[arrays.Levels]:
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
        rows = arrays.sobol(factors, points, seed)
    else:
        rows = arrays.latin_hypercube(factors, points, seed)
    return list(dict.fromkeys(rows))  # lists of few values meet again


def _given_names(parts: dict[str, Located], n_rows: int) -> list[str]:
    if "names" not in parts:
        return []
    given = []
    for item in parts["names"].items():
        text = str(item.value)
        if not NAME.fullmatch(text) or text == DEFAULT_CONFIGURATION:
            item.refuse(
                f"{text!r} cannot be the name of a combination",
                f"use at most {names.MAX_NAME} of a to z, A to Z, 0 to 9, -, _ and .; "
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
