"""The error of a model beyond the scatter of its measurements.

The constants come from real workloads that ran on every configuration of a sweep (docs/evidence.md): each workload
was left out once, and the squared log errors of its predictions, less the scatter of measurements, were fitted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import ndtri


@dataclass(frozen=True, slots=True)
class ModelError:
    """Standard deviation of the log of predicted over true performance.

    Attributes:
        floor: where a configuration is predicted to perform like the default.
        slope: increase with the distance of the prediction from the default, in log units.
    """

    floor: float
    slope: float

    def sd(self, relative: float) -> float:
        """The standard deviation for a prediction, default = 100."""
        return math.hypot(self.floor, self.slope * math.log(relative / 100))

    def half_width(self, relative: float, confidence: float) -> float:
        """Half the interval of the log of one prediction that comes from the model alone."""
        return float(ndtri((1 + confidence) / 2)) * self.sd(relative)


NO_ERROR = ModelError(0.0, 0.0)

ERRORS: Mapping[str, ModelError] = {}
"""By model."""
