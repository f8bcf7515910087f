"""What pools cost: the space that data takes in each, and the prices of device classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cephfit.cli.fleets.pool_options import once

if TYPE_CHECKING:
    from cephfit.ceph.pools.pool_plan import Space


def pool_spaces(
    location: str,
    run_id: str | None,
    placements: tuple[str, ...],
    measured: Sequence[str],
    *,
    only_pools: bool = True,
) -> dict[str, Space | None]:
    """Return the configurations and the space that data takes in the pool of each; None where it is not known.

    The space comes from ``--placement``, else from the sweep, else from the layout of the cluster in the facts of
    the run.

    Args:
        location: of a store or a CSV file; the latter has no settings.
        run_id: of the run in a store.
        placements: values of ``--placement``.
        measured: names of the configurations that were measured.
        only_pools: only those that differ by pool and images; empty for a CSV file without ``placements``.
    """
    from cephfit.results.tables.baseline_csv import is_store

    if not is_store(location):
        named = once("--placement", [parse_placement(text, set(measured)) for text in placements])
        return {name: named.get(name) for name in measured} if named or not only_pools else {}
    from cephfit.ceph.crush.data_placement import RuleLayout
    from cephfit.ceph.pools.pool_plan import only_pool_settings, same_pool, space_of
    from cephfit.operations.measuring.run_status import known_of
    from cephfit.results.store.sample_store import Store

    with Store.open(location) as store:
        run = store.run(run_id)
        sweep = known_of(store, run).sweep
    if run.is_imported:  # as for a CSV file: its configurations have no settings
        named = once("--placement", [parse_placement(text, set(measured)) for text in placements])
        return {name: named.get(name) for name in measured}
    first = same_pool(sweep.configurations)
    rivals = [
        c for c in sweep.configurations if not only_pools or (only_pool_settings(c) and first[c.name] == c.name)
    ]
    given = once("--placement", [parse_placement(text, {c.name for c in rivals}) for text in placements])
    measured_nbytes = sweep.measurement.most_clients * sweep.measurement.volume_nbytes
    layout = RuleLayout.from_facts(run.facts)
    return {c.name: given.get(c.name) or space_of(c, measured_nbytes, layout) for c in rivals}


def refuse_unknown_costs(names: Sequence[str], spaces: Mapping[str, Space | None]) -> None:
    """Refuse pools without a cost, because one of unknown cost is neither cheaper nor dearer than another.

    Args:
        names: pools without a cost; nothing happens without any.
        spaces: of all pools.

    Raises:
        InputError: asks for the layout of a pool, or for the price of a device class.
    """
    from cephfit.core.errors import InputError

    unknown = [name for name in names if spaces.get(name) is None]
    if unknown:
        which = " ".join(f"--placement {name}=CLASS:COPIES" for name in unknown)
        raise InputError(
            f"the device class and copies of {', '.join(unknown)} are not known, so costs cannot be compared",
            where="cost",
            remedy=f"give {which}, such as {unknown[0]}=hdd:3",
        )
    if names:
        every = {name: space for name in names if (space := spaces.get(name))}
        raise InputError(
            f"the costs of {', '.join(every)} are not known: a device class has no price",
            where="--price",
            remedy=f"give a price for each of {', '.join(sorted({c for space in every.values() for c in space}))}",
        )


def parse_placement(text: str, known: set[str]) -> tuple[str, Space]:
    """Parse ``--placement``: the configuration, and the bytes on disks per byte of data.

    Args:
        text: ``CONFIGURATION=CLASS:COPIES``.
        known: configurations with a pool.

    Raises:
        InputError: it has another form, or names an unknown configuration.
    """
    from cephfit.core.errors import InputError

    name, _, rest = text.partition("=")
    device_class, _, copies = rest.partition(":")
    try:
        share = float(copies)
    except ValueError:
        share = math.nan
    if name not in known and 0 < share < math.inf:
        raise InputError(
            f"there is no configuration {name!r} with a pool",
            where="--placement",
            remedy=f"there are {', '.join(sorted(known))}",
        )
    if name not in known or not device_class or not 0 < share < math.inf:
        raise InputError(
            f"{text!r} is not CONFIGURATION=CLASS:COPIES",
            where="--placement",
            remedy=f"write it like {min(known)}=hdd:3",
        )
    return name, {device_class: share}


def parse_prices(prices: tuple[str, ...], spaces: dict[str, Space | None]) -> dict[str, float]:
    """Return the price of a byte by device class; 1 for each if no price is given.

    Args:
        prices: each ``CLASS=NUMBER``.
        spaces: by configuration; None if unknown.

    Raises:
        InputError: one has another form, or names a class without a pool.
    """
    from cephfit.core.errors import InputError

    if not prices:
        return {name: 1.0 for space in spaces.values() if space for name in space}
    found: list[tuple[str, float]] = []
    classes = sorted({name for space in spaces.values() if space for name in space})
    for text in prices:
        name, _, number = text.partition("=")
        try:
            price = float(number)
        except ValueError:
            price = math.nan
        if not name or not 0 <= price < math.inf:
            raise InputError(
                f"{text!r} is not CLASS=NUMBER with a number of zero or more",
                where="--price",
                remedy="write it like ssd=4",
            )
        if classes and name not in classes:
            raise InputError(
                f"no pool is on device class {name!r}",
                where="--price",
                remedy=f"there are {', '.join(classes)}",
            )
        found.append((name, price))
    return once("--price", found)
