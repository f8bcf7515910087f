"""How well the mean of a cell's repeats is known, from few of them."""

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import stdtrit

from cephfit.baseline import Baselines
from cephfit.cells import Cell
from cephfit.spread import LARGEST_LOG, PRIOR_DF


def half_widths(baselines: Baselines, confidence: float) -> Mapping[tuple[str, Cell], float]:
    """Half the interval of each mean, as a part of it: 0.05 is 5 % either way. Repeats once measured are left out.

    The variance of log IOPS of a cell is pooled over all configurations that have repeats of it; a configuration's
    own, of n - 1 degrees of freedom, is drawn towards it with the weight of 4, and the larger of the two is taken,
    so that one that is unsteady is not called precise for the calm of the others. With t the quantile of
    min(pooled df, 4 + n - 1) degrees of freedom, the half width is exp(t * s / sqrt(n)) - 1.
    """
    logs = {place: np.log(np.array(b.iops)) for place, b in baselines.cells.items() if len(b.iops) > 1}
    widths = {}
    for cell in dict.fromkeys(cell for _, cell in logs):
        groups = {name: values for (name, other), values in logs.items() if other == cell}
        df = sum(len(values) - 1 for values in groups.values())
        pooled = sum(float(((v - v.mean()) ** 2).sum()) for v in groups.values()) / df
        for name, values in groups.items():
            n = len(values)
            own = float(values.var(ddof=1))
            variance = max(pooled, (PRIOR_DF * pooled + (n - 1) * own) / (PRIOR_DF + n - 1))
            quantile = float(stdtrit(min(df, PRIOR_DF + n - 1), (1 + confidence) / 2))
            widths[name, cell] = math.expm1(min(quantile * math.sqrt(variance / n), LARGEST_LOG))
    return widths
