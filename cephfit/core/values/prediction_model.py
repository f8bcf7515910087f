"""The prediction models: name, description, and how each adds up a mix of accesses.

They are declared here once: commands offer them, the mapper implements them, and reports name them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """One prediction model.

    Attributes:
        name: as in options, stored predictions and reports.
        sentence: its description, printed after the name; without a full stop.
        adds_time: the mix adds up as time. Then a prediction is a ratio of rates, and the ratio of two
            configurations X and Y does not depend on the default: T_Y / T_X. Else relative rates add up, weighted
            by accesses.
        by_waiting: demands weigh what the trace waited for them on the default. Where the trace does not tell,
            ``time`` answers instead.
        all_random: treat all accesses as random (True) or as sequential (False); None: as in the profile.
    """

    name: str
    sentence: str
    adds_time: bool = False
    by_waiting: bool = False
    all_random: bool | None = None


_ADDS_RATES = "adds relative rates, not time: a cell that got faster counts for more than it saves"

MODELS = (
    Model(
        "waiting",
        "what the workload waited for on the default grows or shrinks with the time per access; the rest of its "
        "time stays",
        adds_time=True,
        by_waiting=True,
    ),
    Model(
        "time",
        "the mix adds up as time (a weighted harmonic mean of the rates): slow cells count for what they cost",
        adds_time=True,
    ),
    Model("meyer", f"Meyer's Formula 2.1, which {_ADDS_RATES}"),
    Model(
        "meyer-random", f"Meyer's Formula 2.1 with every access taken as random; it {_ADDS_RATES}", all_random=True
    ),
    Model(
        "meyer-sequential",
        f"Meyer's Formula 2.1 with every access taken as sequential; it {_ADDS_RATES}",
        all_random=False,
    ),
)
"""The first model is the default."""

LEARNED = "learned"
"""Name of the model that corrects another one by verified runs. It needs their results, so ``MODELS`` lacks it."""
_LEARNED = Model(
    LEARNED,
    "gains and losses of the analytic model, corrected by what it missed on workloads that were really run",
    adds_time=True,
)

DEFAULT_CONFIDENCE = 0.95
"""Default level of intervals."""


def model_called(name: str) -> Model:
    """Return the model of this name; a generic one for a name that a later version of cephfit stored."""
    unknown = Model(name, "a model that this version of cephfit does not know")
    return next((model for model in (*MODELS, _LEARNED) if model.name == name), unknown)
