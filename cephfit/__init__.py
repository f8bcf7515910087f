"""cephfit: which Ceph configuration fits an OpenStack workload, by how much, and how sure that is.

The names in ``__all__`` are the public Python API; docs/python.md is a tour of it. All other modules are private
and may change. ``import cephfit`` loads next to nothing: each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cephfit._version import __version__

if TYPE_CHECKING:
    from cephfit._api.assess import Accuracy, AccuracySummary, assess
    from cephfit._api.functions import (
        open_store,
        predict,
        predict_many,
        profile_trace,
        read_baselines,
        read_profile,
        run_sweep,
        supply,
    )
    from cephfit._api.store import Runs, Samples, Store, WorkloadRuns
    from cephfit.core.errors import CephfitError, ClusterError, HostError, InputError, StoreError
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.prediction import ManyPredictions, Prediction, PredictionSet, Verdict
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.sample import Run
    from cephfit.core.values.supply import SupplySet

__all__ = [
    "Accuracy",
    "AccuracySummary",
    "Baselines",
    "CephfitError",
    "ClusterError",
    "HostError",
    "InputError",
    "ManyPredictions",
    "Prediction",
    "PredictionSet",
    "Profile",
    "Run",
    "Runs",
    "Samples",
    "Store",
    "StoreError",
    "SupplySet",
    "Verdict",
    "WorkloadRuns",
    "__version__",
    "assess",
    "open_store",
    "predict",
    "predict_many",
    "profile_trace",
    "read_baselines",
    "read_profile",
    "run_sweep",
    "supply",
]

_FROM = {
    "cephfit._api.assess": ("Accuracy", "AccuracySummary", "assess"),
    "cephfit._api.functions": (
        *("open_store", "predict", "predict_many", "profile_trace"),
        *("read_baselines", "read_profile", "run_sweep", "supply"),
    ),
    "cephfit._api.store": ("Runs", "Samples", "Store", "WorkloadRuns"),
    "cephfit.core.values.baseline": ("Baselines",),
    "cephfit.core.errors": ("CephfitError", "ClusterError", "HostError", "InputError", "StoreError"),
    "cephfit.core.values.prediction": ("ManyPredictions", "Prediction", "PredictionSet", "Verdict"),
    "cephfit.core.values.profile": ("Profile",),
    "cephfit.core.values.sample": ("Run",),
    "cephfit.core.values.supply": ("SupplySet",),
}
_MODULE_OF = {name: module for module, names in _FROM.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'cephfit' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
