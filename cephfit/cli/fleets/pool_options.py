"""Pools of a placement: capacities, costs, volume types, and the OpenStack commands that set these types."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cephfit.cli.options.common_options import Finite
from cephfit.core.values.configuration import ImageChange, ImageRule

if TYPE_CHECKING:
    from cephfit.ceph.pools.pool_plan import Space


_Command = TypeVar("_Command", bound=Callable[..., Any])
_Value = TypeVar("_Value")


def joint_options(command: _Command) -> _Command:
    """Adds the options of a joint placement; each has an effect only together with a capacity."""
    for option in (
        click.option("--split", is_flag=True, help="The machines of one workload may have different pools."),
        click.option(
            "--budget",
            type=Finite(min=0, min_open=True),
            metavar="COST",
            help="Highest price of all data: sum of GiB x price. Place jointly for the best performance.",
        ),
        click.option(
            "--fill",
            metavar="PERCENT",
            help="Highest share of a pool's time that the workloads may take. Place jointly.  [default: 100%]",
        ),
        click.option(
            "--volume",
            "volumes",
            multiple=True,
            metavar="[WORKLOAD=]SIZE",
            help="Data of one virtual machine, of all workloads or of one; with --space and --budget. Repeatable.",
        ),
        click.option(
            "--space",
            "capacities",
            multiple=True,
            metavar="POOL=SIZE",
            help="Capacity of a pool in bytes of data, such as ssd=10TiB. Place jointly. Repeatable.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Capacities:
    """The limits that a user gave.

    Attributes:
        space: pool to bytes of data.
        fill: highest share of a pool's time, > 0; None if it was not given.
        budget: highest cost of all data, in GiB x price; None without one.
        volumes: workload to bytes of data of one machine; the key "" is for all others.
        split: the machines of a workload may have different pools.
    """

    space: Mapping[str, int]
    fill: float | None
    budget: float | None
    volumes: Mapping[str, int]
    split: bool

    @property
    def are_given(self) -> bool:
        return bool(self.space) or self.fill is not None or self.budget is not None

    def volume_of(self, workload: str) -> int | None:
        return self.volumes.get(workload, self.volumes.get(""))

    def to_json(self) -> dict[str, Any]:
        return {"space": dict(self.space), "fill": self.fill, "budget": self.budget, "volumes": dict(self.volumes)}


def parse_capacities(
    space: Sequence[str],
    fill: str | None,
    budget: float | None,
    volumes: Sequence[str],
    *,
    split: bool,
    pools: Sequence[str],
    workloads: Sequence[str],
) -> Capacities:
    """Parse the options of a joint placement.

    Raises:
        InputError: one has another form, or names an unknown pool or workload; or two workloads have one name.
    """
    from cephfit.core.errors import InputError

    if twice := sorted({n for n in workloads if list(workloads).count(n) > 1}):
        raise InputError(
            f"several workloads have the name {', '.join(twice)}",
            where="place",
            remedy="give each profile once, with the sum of the machines, such as mail.json:40",
        )
    given = Capacities(
        once("--space", [_named_nbytes(text, "--space", pools) for text in space]),
        None if fill is None else _share(fill),
        budget,
        once("--volume", [_named_nbytes(text, "--volume", workloads, may_lack=True) for text in volumes]),
        split,
    )
    if not given.are_given:
        if volumes or split:
            raise InputError(
                "--volume and --split need a capacity", where="place", remedy="give --space, --fill or --budget"
            )
        return given
    lacking = [n for n in workloads if given.volume_of(n) is None]
    if lacking and (given.space or given.budget is not None):
        raise InputError(
            f"the size of a volume of {', '.join(lacking)} is not known",
            where="--space" if given.space else "--budget",
            remedy="give --volume 100GiB for all, or --volume WORKLOAD=100GiB for one",
        )
    return given


def once(option: str, pairs: Sequence[tuple[str, _Value]]) -> dict[str, _Value]:
    """Return the values of a repeatable option by name.

    Raises:
        InputError: a name has two values.
    """
    from cephfit.core.errors import InputError

    names = [name for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        what = ", ".join(twice).strip() or "all workloads"
        raise InputError(f"{what}: several values are given", where=option, remedy=f"give {option} once for each")
    return dict(pairs)


def _named_nbytes(text: str, option: str, known: Sequence[str], *, may_lack: bool = False) -> tuple[str, int]:
    from cephfit.core.errors import InputError
    from cephfit.core.units import parse_nbytes
    from cephfit.core.yaml_lines import nearest

    name, equals, size = text.rpartition("=")
    if (not equals and not may_lack) or not size:
        raise InputError(f"{text!r} is not NAME=SIZE", where=option, remedy=f"write it like {known[0]}=10TiB")
    if name and name not in known:
        what = "pool" if option == "--space" else "workload"
        raise InputError(f"there is no {what} {name!r}", where=option, remedy=nearest(name, known))
    nbytes = parse_nbytes(size, where=option)
    if nbytes <= 0:
        raise InputError(f"{size!r} is no size", where=option, remedy="give more than 0 bytes")
    return name, nbytes


def _share(text: str) -> float:
    from cephfit.core.errors import InputError

    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise InputError(
            f"{text!r} is not a share of time", where="--fill", remedy="write it like 80%, up to 100%"
        )
    return share


def parse_types(texts: Sequence[str], pools: Sequence[str]) -> dict[str, str]:
    """Parse ``--type POOL=NAME``.

    Raises:
        InputError: it has another form, or names an unknown pool.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.yaml_lines import nearest

    found = []
    for text in texts:
        pool, _, name = text.partition("=")
        if not pool or not name:
            raise InputError(f"{text!r} is not POOL=NAME", where="--type", remedy=f"write it like {pools[0]}=fast")
        if pool not in pools:
            raise InputError(f"there is no pool {pool!r}", where="--type", remedy=nearest(pool, pools))
        found.append((pool, name))
    return once("--type", found)


def declared_types(location: str, run_id: str | None) -> dict[str, str]:
    """Return the volume types that the configurations of a sweep name; empty for a CSV file."""
    from cephfit.results.tables.baseline_csv import is_store

    if not is_store(location):
        return {}
    from cephfit.core.values.configuration import SCOPE, TYPE, Partition
    from cephfit.operations.measuring.run_status import known_of
    from cephfit.results.store.sample_store import Store

    with Store.open(location) as store:
        sweep = known_of(store, store.run(run_id)).sweep
    return {
        c.name: str(s.value)
        for c in sweep.configurations
        for s in c.within(Partition.POOL)
        if (s.scope, s.key) == (SCOPE, TYPE)
    }


def read_rules(path: Path, workloads: Sequence[str]) -> tuple[ImageRule, ...]:
    """Read which images run which workload: ``properties`` (``KEY=VALUE: NAME``) and ``tags`` (``TAG: NAME``).

    Raises:
        InputError: the file cannot be read, or names an unknown workload.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.yaml_lines import nearest, read_yaml

    usage = "write `properties: {KEY=VALUE: WORKLOAD}` or `tags: {TAG: WORKLOAD}` into a YAML file"
    if path.is_dir():
        raise InputError("it is a folder, not a file", where=str(path), remedy=usage)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the file cannot be read: {error}", where=str(path), remedy=usage) from None
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        raise InputError("the file is empty", where=str(path), remedy=usage)
    document = read_yaml(text, file=str(path)).mapping(("properties", "tags"))
    rules = []
    for word, option in (("properties", "--property"), ("tags", "--tag")):
        for key, value in document[word].mapping().items() if word in document else ():
            if word == "properties" and not all(key.partition("=")[::2]):
                value.refuse(f"{key!r} is not KEY=VALUE", "write it like workload=database")
            if (name := str(value.value)) not in workloads:
                value.refuse(f"there is no workload {name!r} among the given profiles", nearest(name, workloads))
            rules.append(ImageRule((option, key), name))
    if not rules:
        raise InputError(
            "it names no image property or tag",
            where=str(path),
            remedy=usage,
        )
    return tuple(rules)


def image_changes(
    rules: Sequence[ImageRule], pools: Mapping[str, Sequence[str]], types: Mapping[str, str]
) -> tuple[ImageChange, ...]:
    """Return the change of each rule's images.

    Args:
        rules: which images run which workload.
        pools: workload to its pools.
        types: pool to its volume type.

    Raises:
        InputError: a workload has no pool or several, or its pool has no volume type.
    """
    from cephfit.core.errors import InputError

    changes = []
    for rule in rules:
        its = pools.get(rule.workload, ())
        if len(its) != 1:
            raise InputError(
                f"the workload {rule.workload} has {', '.join(its) or 'no pool'}: an image has one volume type",
                where="--properties",
                remedy="leave out --split, or give --at-least a value that a pool reaches",
            )
        if its[0] not in types:
            raise InputError(
                f"the volume type of pool {its[0]} is not known",
                where="--properties",
                remedy=f"give --type {its[0]}=NAME (`openstack volume type list`)",
            )
        changes.append(ImageChange(rule, types[its[0]]))
    return tuple(changes)


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
