"""Rates moved towards what most configurations have in common, by empirical Bayes. Pure.

Most configurations leave most cells as they are. Their rates differ by noise alone, and the default's own noise is
in every ratio to it: on a volume that lay well, it made all other configurations look slow. So a cell's rates are
not taken by themselves. In cell c, with the common log rate m_c and what configuration j adds to all cells, u_j,

    log rate of configuration j = m_c + u_j + effect_jc + noise,    effect_jc ~ sum over g of w_jg * N(0, sd_g^2)

The standard deviations are fixed (``EFFECT_SDS``; the first is 0: no effect), the noise is the cell's pooled
variance. The weights w_j are those of configuration j over all of its cells, with a prior of ``PRIOR_CELLS`` cells
that have the weights of all configurations together. A configuration that changes everything in its own way keeps
its rates, and one that changes all cells alike keeps that change, because it is measured in every cell. Weights, m
and u are the most likely ones (expectation maximisation), the rate of a place is the mean of its posterior
(Stephens 2017, False discovery rates: a new deal, Biostatistics 18:2).

Only places of the default's number of clients have rates in common with it, and only cells that at least
``LEAST_CONFIGURATIONS`` have tell what is common.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cephfit.core.statistics.round_effects import Booleans, Floats
from cephfit.core.statistics.variance import Spread, Table, spread_of
from cephfit.core.values.baseline import Baseline, Baselines

EFFECT_SDS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Of log rates: from 5 % to fivefold, each twice the one before."""
PRIOR_CELLS = 10.0
"""Weight of all configurations' effects in those of one, in cells."""
LEAST_CONFIGURATIONS = 3
_MOST_STEPS = 200
_STEP = 1e-3
"""Largest change of weights and of log rates at which the search ends."""


def shared(baselines: Baselines) -> Baselines:
    """Return the baselines with the rates of ``loaded`` moved; those of ``cells`` stay.

    All repeats of a place are moved by the same factor, so that its scatter stays. Nothing is moved if nothing was
    measured twice.
    """
    names = tuple(dict.fromkeys([baselines.default, *(name for name, _ in baselines.loaded)]))
    if len(names) < LEAST_CONFIGURATIONS:
        return baselines
    table = Table.of_loaded(baselines, names)
    spread = spread_of(table)
    if spread is None:
        return baselines
    row, column = ({key: i for i, key in enumerate(keys)} for keys in (names, table.cells))
    at = {(name, cell): (row[name], column[cell]) for name, cell in baselines.loaded}
    n_clients = np.zeros(table.present.shape[:2], dtype=np.int64)
    for key, found in baselines.loaded.items():
        n_clients[at[key]] = found.n_clients
    logs, held = _comparable_logs(table, n_clients)
    held &= held.sum(axis=0) >= LEAST_CONFIGURATIONS
    factors = np.exp(np.where(held, shared_logs(logs, _variances(spread), held) - logs, 0.0))
    loaded = {key: _moved(found, float(factors[at[key]])) for key, found in baselines.loaded.items()}
    return replace(baselines, loaded=loaded)


def shared_logs(logs: Floats, variances: Floats, held: Booleans) -> Floats:
    """Return the means of the posterior of log rates, shape (J, C). J configurations, C cells.

    Args:
        logs: measured log rates, each cell's up to a constant, shape (J, C).
        variances: of their noise, above 0, shape (J, C).
        held: where there is a rate, shape (J, C).
    """
    logs = np.where(held, logs, 0.0)
    of_effects = np.square(EFFECT_SDS)
    in_all = variances[..., None] + of_effects
    common = _medians(logs, held)
    shifts = _medians((logs - common).T, held.T)[:, None]
    own = np.full((len(logs), len(of_effects)), 1 / len(of_effects))
    for _ in range(_MOST_STEPS):
        squares = np.square(logs - common - shifts)[..., None]
        log_parts = np.log(own)[:, None] - (np.log(in_all) + squares / in_all) / 2
        parts = np.exp(log_parts - log_parts.max(axis=-1, keepdims=True))
        parts *= (held / parts.sum(axis=-1))[..., None]
        precisions = (parts / in_all).sum(axis=-1)
        before = common, shifts, own
        common = _means(logs - shifts, precisions)
        shifts = _means((logs - common).T, precisions.T)[:, None]
        counts = parts.sum(axis=1)
        of_all = (counts.sum(axis=0) + 1) / (counts.sum() + len(of_effects))
        own = counts + PRIOR_CELLS * of_all
        own /= own.sum(axis=-1, keepdims=True)
        steps = (np.abs(now - then).max() for now, then in zip((common, shifts, own), before, strict=True))
        if max(steps) < _STEP:
            break
    kept = (parts * (of_effects / in_all)).sum(axis=-1)
    alike = common + shifts
    return np.asarray(alike + kept * (logs - alike))


def _medians(values: Floats, held: Booleans) -> Floats:
    """Return the median of each column; 0 for one without values."""
    return np.asarray(np.nanmedian(np.where(held, values, np.where(held.any(axis=0), math.nan, 0.0)), axis=0))


def _means(values: Floats, weights: Floats) -> Floats:
    """Return the weighted mean of each column; 0 for one without weights."""
    return np.asarray((weights * values).sum(axis=0) / np.maximum(weights.sum(axis=0), 1e-300))


def _comparable_logs(table: Table, n_clients: NDArray[np.int64]) -> tuple[Floats, Booleans]:
    """Return the log rates without effects of rounds, and where they can be compared with the default's.

    Args:
        table: of the measurements, the default first.
        n_clients: of each place, 0 where nothing was measured, shape (J, C).
    """
    held: Booleans = np.asarray((n_clients > 0) & (n_clients == n_clients[0]))
    logs = np.zeros(held.shape)
    for block in {id(block): block for block in table.blocks}.values():
        cells = [c for c, its in enumerate(table.blocks) if its is block]
        for c in cells:
            logs[:, c] = block.effects(table.logs[:, c])
        if not block.whole:
            held[:, cells] &= np.array([block.contrast(j, 0) is not None for j in range(len(held))])[:, None]
    return logs, held


def _variances(spread: Spread) -> Floats:
    """Return the variance of the mean of each place, by that of all configurations, shape (J, C)."""
    return np.asarray((spread.pooled + spread.applied) / np.maximum(spread.n, 1))


def _moved(found: Baseline, factor: float) -> Baseline:
    return found if factor == 1.0 else replace(found, iops=tuple(factor * value for value in found.iops))
