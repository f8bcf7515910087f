"""The models that predict: what each is called, what it does, and how it adds up a mix of accesses.

They are named here once: commands offer them, the mapper computes by them, and reports say which one it was.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """A way to predict.

    Attributes:
        name: as options, stored predictions and reports have it.
        sentence: what it does, to follow its name; without a full stop.
        adds_time: the mix adds up as time. Then a prediction is a ratio of rates, and that of two configurations
            does not depend on the default: T_Y / T_X for any X and Y. Else relative rates add up, weighted by
            accesses.
        all_random: it takes all accesses as random (True) or as sequential (False); None: as the profile has them.
    """

    name: str
    sentence: str
    adds_time: bool = False
    all_random: bool | None = None


_ADDS_RATES = "adds relative rates, not time: a cell that got faster counts for more than it saves"

MODELS = (
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
"""The first one is the default."""

DEFAULT_CONFIDENCE = 0.95
"""Level of intervals unless a person names another one."""


def model_called(name: str) -> Model:
    """The model of this name; for one that a later version of cephfit stored, what little is known of it."""
    unknown = Model(name, "a model that this version of cephfit does not know")
    return next((model for model in MODELS if model.name == name), unknown)
