"""The factors of a design in a sweep file: settings with lists or ranges of values, alone or in groups."""

from cephfit.configuration import as_yaml
from cephfit.sweep.declaration.file_settings import NAME, SETTING_PARTS, SettingPlace, setting_places
from cephfit.sweep.design.factor import DEFAULT_LEVEL, Factor, Level, Span
from cephfit.sweep.design.names import as_name
from cephfit.sweep.yaml_lines import Located
from cephfit.units import parse_nbytes

_SPAN = ("low", "high", "scale", "step")
_SCALES = ("linear", "log")
_SMALL_STEP = 4096
"""Sizes of a range are whole multiples of this, where the range allows, unless the file says otherwise."""


def read_factors(body: Located, accepted: tuple[str, ...], *, spans: bool) -> tuple[Factor, ...]:
    """The factors of a design: each setting under ``settings``, and each group under ``factors``.

    Args:
        body: the design.
        accepted: keys of settings that risk data and are wanted all the same.
        spans: whether ranges are understood.

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
        body.refuse("a design without anything to vary", "add `settings:` with a list of values for each key")
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
            body.refuse(f"two factors are called {name}", "give the group under `factors` another name")


def _single(name: str, place: SettingPlace, accepted: tuple[str, ...], *, spans: bool) -> Factor:
    if isinstance(place.entry.value, dict):
        if not spans:
            place.entry.refuse(
                f"{place.key} has a range, which this kind of design does not take", "write a list of values"
            )
        return Factor(name, (), _span(place, accepted))
    return Factor(name, _levels(place, accepted))


def _group(
    name: str, group: Located, places: list[SettingPlace], accepted: tuple[str, ...], *, spans: bool
) -> Factor:
    if not places:
        group.refuse(f"the factor {name} has no settings")
    if len(places) == 1:
        return _single(name, places[0], accepted, spans=spans)
    columns = [_levels(place, accepted) for place in places]
    if len({len(column) for column in columns}) > 1:
        said = ", ".join(f"{p.key} {len(c)}" for p, c in zip(places, columns, strict=True))
        group.refuse(f"the settings of one factor must have equally many values: {said}")
    levels = [
        Level(
            "+".join(dict.fromkeys(level.label for level in row if not level.is_default)) or DEFAULT_LEVEL,
            tuple(setting for level in row for setting in level.settings),
        )
        for row in zip(*columns, strict=True)
    ]
    return Factor(name, tuple(levels))


def _levels(place: SettingPlace, accepted: tuple[str, ...]) -> tuple[Level, ...]:
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
        parts["low"].refuse("a range by factors cannot begin at 0 or below", "begin above 0, or scale: linear")
    for end in (parts["low"], parts["high"]):
        place.setting(end.scalar(), accepted)
    step = _number(parts["step"]) if "step" in parts else _step(low, high, is_size=is_size)
    if step < 0 or step > high - low:
        parts["step"].refuse(f"no two values of {place.key} are {step:g} apart")
    return Span(place.partition, place.scope, place.key, low, high, is_log=is_log, step=step, is_size=is_size)


def _step(low: float, high: float, *, is_size: bool) -> float:
    """Whole numbers stay whole, sizes are whole multiples of a block where the range begins at one."""
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
