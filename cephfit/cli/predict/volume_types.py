"""Volume types of pools, and the OpenStack commands that give images of a workload its volume type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cephfit.core.values.image_types import ImageChange, ImageRule


def parse_types(texts: Sequence[str], pools: Sequence[str]) -> dict[str, str]:
    """Parse ``--type POOL=NAME``.

    Raises:
        InputError: it has another form, or names an unknown pool.
    """
    from cephfit.cli.predict.placement_limits import once
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
    from cephfit.core.values.configuration import Partition
    from cephfit.core.values.volume_keys import SCOPE, TYPE
    from cephfit.operations.run_status import known_of
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
