"""The section ``stopping`` of a sweep file."""

from cephfit.sweep.stopping import Decide, RaceFor, Stopping
from cephfit.sweep.yaml_lines import Located

_WORDS = ("race", "decide", "margin_percent", "within_percent", "minimum", "confidence")


def read_stopping(entry: Located | None, repeats: int) -> Stopping | None:
    """The section, None where the file has none: then all repeats are taken.

    Raises:
        InputError: names file and line.
    """
    if entry is None:
        return None
    parts = entry.mapping(_WORDS)
    if not {"race", "within_percent"} & set(parts):
        entry.refuse("nothing says when to stop", "add `race: profile`, `race: cells` or `within_percent: 5`")
    minimum = parts["minimum"].whole(least=2) if "minimum" in parts else 2
    if minimum >= repeats:
        entry.refuse(
            f"the first decision would come after {minimum} repeats, and the sweep has {repeats}",
            "repeats is the ceiling: write more, such as the thesis's 9",
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
