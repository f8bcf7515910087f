"""Check the form of a profile's description, because profiles may be hand-written.

The commands that show, plot and compare profiles or make jobs from them rely on this form. A part may be missing
where they do not need it; a part that is present must have the right form.
"""

from collections.abc import Mapping
from typing import Any

from cephfit.core.errors import InputError

_NUMBER, _COUNT, _TEXT, _COUNTS_IN_TEXT, _MAYBE_NUMBER = (
    "a number",
    "a count",
    "text",
    "counts in text",
    "a number?",
)

_SHARES = {"*": _NUMBER}
_BY_OP = {"read": _SHARES, "write": _SHARES}
_LIMITED = {"limits": (_NUMBER,), "counts": (_COUNT,)}
_FOOTPRINT = {
    "blocks_of_4k": _COUNT,
    "nbytes": _COUNT,
    "relative_standard_error": _NUMBER,
    "reaccess_share": _NUMBER,
}
_HOT_SPOTS = {"region_nbytes": _COUNT, "regions_touched": _COUNT, "share_of_regions": {"accesses": _SHARES}}
_OF_OP = {"previous": [_NUMBER, None], "closest_of_16": [_NUMBER, None]}
_PHASE = {
    "start_seconds": _NUMBER,
    "seconds": _NUMBER,
    "share_of_accesses": _NUMBER,
    "iops": _NUMBER,
    "bytes_per_second": _NUMBER,
    "accesses": _BY_OP,
    "random": {"read": _NUMBER, "write": _NUMBER},
    "random_by_bin": _BY_OP,
}
_DISK = {
    "busy_share": _MAYBE_NUMBER,
    "mean_outstanding": _MAYBE_NUMBER,
    "mean_latency_us": _MAYBE_NUMBER,
    "heat_map": {
        "bin_seconds": _NUMBER,
        "start_seconds": _NUMBER,
        "region_nbytes": _COUNT,
        "first_lbn": _COUNT,
        "rows": (_COUNTS_IN_TEXT,),
    },
    "sample": {"time_us": _TEXT, "lbn": _TEXT, "op": _TEXT},
}
_OVER_TIME = {"bin_seconds": _NUMBER, "start_seconds": _NUMBER} | {
    f"{op}{what}": (_COUNT,) for op in ("read", "write") for what in ("s", "_nbytes")
}
_BEHAVIOUR = {
    "sensitivity": {"thresholds_lbn": (_COUNT,), "read": _OF_OP, "write": _OF_OP},
    "sizes": {"dominant": [{"op": _TEXT, "nbytes": _COUNT, "accesses": _COUNT, "share": _NUMBER}]},
    "burstiness": [{"window_seconds": _NUMBER, "peak_to_mean": _NUMBER, "index_of_dispersion": _NUMBER}],
    "footprint": _FOOTPRINT,
    "hot_spots": _HOT_SPOTS,
    "phases": [_PHASE],
    "disks": {"*": _DISK},
}
_DESCRIPTION: Mapping[str, Any] = {
    "sources": [{}],
    "why_action": _TEXT,
    "random_threshold_lbn": _COUNT,
    "duration_seconds": _MAYBE_NUMBER,
    "clock_seconds": _MAYBE_NUMBER,
    "iops": _NUMBER,
    "bytes_per_second": _NUMBER,
    "busiest": {"second": _MAYBE_NUMBER, "minute": _MAYBE_NUMBER},
    "clock_steps_back": _COUNT,
    "histograms": {"*": {"*": _LIMITED}},
    "percentiles": {"*": {"*": {"n": _COUNT, "*": _NUMBER}}},
    "random_by_threshold": {"*": _SHARES},
    "disks": {"*": {}},
    "n_disks": _COUNT,
    "left_out": {"*": {"accesses": _COUNT, "why": _TEXT}},
    "skipped": {"*": _COUNT},
    "lacks": [_TEXT],
    "notes": [_TEXT],
}
"""Every entry may be missing. ``*`` means any name, a tuple a list with at least one entry, a list with None a
list that may be null."""


def check_description(description: Mapping[str, Any], *, where: str) -> None:
    """Check the parts of a description that other commands use.

    Raises:
        InputError: A part does not have the form that cephfit writes.
    """
    for name, form in _DESCRIPTION.items():
        if name in description:
            _check(description[name], form, f"{where}: description.{name}")
    for name, by_kind in description.get("histograms", {}).items():
        for kind, row in by_kind.items():
            if len(row["counts"]) != len(row["limits"]) + 1:
                raise _wrong("there must be one more count than limits", f"{where}: histograms.{name}.{kind}")
    behaviour = description.get("behaviour")
    if behaviour is not None:
        _check(behaviour, _BEHAVIOUR, f"{where}: description.behaviour")
        over_time = behaviour.get("over_time")
        if over_time is not None:
            _check(over_time, _OVER_TIME, f"{where}: description.behaviour.over_time")


def _check(value: Any, form: Any, where: str) -> None:
    if isinstance(form, dict):
        if not isinstance(value, dict):
            raise _wrong(f"{value!r:.40} is not an object", where)
        for name in form.keys() - {"*"} - value.keys():
            raise _wrong(f"{name!r} is missing", where)
        for name, part in value.items():
            if name in form or "*" in form:
                _check(part, form.get(name, form.get("*")), f"{where}.{name}")
    elif isinstance(form, list | tuple):
        if value is None and None in form:
            return
        if not isinstance(value, list) or (isinstance(form, tuple) and not value):
            at_least_one = " with at least one entry" if value == [] else ""
            raise _wrong(f"{value!r:.40} is not a list{at_least_one}", where)
        for i, part in enumerate(value):
            _check(part, form[0], f"{where}[{i}]")
    elif not _is(value, form):
        raise _wrong(f"{value!r:.40} is not {form.removesuffix('?')}", where)


def _is(value: Any, form: str) -> bool:
    if form == _TEXT:
        return isinstance(value, str)
    if form == _COUNTS_IN_TEXT:
        return isinstance(value, str) and bool(value.split()) and all(word.isdecimal() for word in value.split())
    if value is None:
        return form == _MAYBE_NUMBER
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return form != _COUNT or (isinstance(value, int) and value >= 0)


def _wrong(what: str, where: str) -> InputError:
    return InputError(what, where=where, remedy="create the profile again with `cephfit trace profile`")
