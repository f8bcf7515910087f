"""Options as a tree: component, category, parameter (Meyer 2017, section 2.4.1).

Ceph's names form the tree: the first word is the component, the second the part of it. Options that are alone in
their category are collected under ``general``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cephfit.ceph.options.option import Option
from cephfit.ceph.options.risk import RISKS, Risk
from cephfit.core.values.configuration import Partition

GENERAL = "general"
OTHER = "common"

_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "osd": ("osd", "heartbeat", "memory"),
    "bluestore": ("bluestore", "bluefs", "bdev", "rocksdb"),
    "filestore": ("filestore", "journal", "journaler"),
    "other object stores": ("memstore", "kstore", "leveldb", "keyvaluestore", "seastore"),
    "monitor": ("mon", "paxos", "clog"),
    "manager": ("mgr",),
    "metadata server": ("mds", "mdsc"),
    "rados gateway": ("rgw",),
    "rbd client": ("rbd", "rwl", "immutable"),
    "rados client": ("objecter", "rados", "librados"),
    "cephfs client": ("client", "fuse", "cephfs", "filer"),
    "messenger": ("ms", "public", "cluster"),
    "authentication": ("auth", "cephx", "keyring", "key", "keyfile", "rotating", "gss"),
    "logging": ("log", "debug", "err", "lockdep"),
}
_COMPONENT_OF = {word: component for component, words in _COMPONENTS.items() for word in words}
COMPONENTS = (*_COMPONENTS, OTHER)
"""In the order in which the tree is shown."""

_READERS = {
    "osd": "osd", "bluestore": "osd", "filestore": "osd", "other object stores": "osd", "monitor": "mon",
    "manager": "mgr", "metadata server": "mds", "rados gateway": "rgw", "rbd client": "client",
    "rados client": "client", "cephfs client": "client",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option with its position in the tree.

    Attributes:
        option: as the cluster describes it.
        component: one of ``COMPONENTS``.
        category: within the component.
        risks: known risks to data, for some value or for all.
    """

    option: Option
    component: str
    category: str
    risks: tuple[Risk, ...]

    @property
    def readers(self) -> tuple[str, ...]:
        """The readers: Ceph's list, else derived from the component; empty for all daemons and clients."""
        by_component = _READERS.get(self.component)
        return self.option.services or ((by_component,) if by_component else ())

    @property
    def tags(self) -> tuple[str, ...]:
        """Warnings before a change: ``restart``, ``creation``, ``risk``, ``recovery``."""
        when = self.option.takes_effect
        return (
            *((when,) if when != "at once" else ()),
            *(("risk",) if self.risks else ()),
            *(("recovery",) if self.option.affects_recovery else ()),
        )


def tree_of(options: Iterable[Option]) -> tuple[Parameter, ...]:
    """Return all options with their positions, sorted by component, category and name."""
    options = sorted(options, key=lambda option: option.name)
    sizes = Counter(_place(option.name) for option in options)
    parameters = []
    for option in options:
        component, category = _place(option.name)
        if sizes[component, category] == 1:
            category = GENERAL
        parameters.append(Parameter(option, component, category, risks_of(option.name)))
    return tuple(sorted(parameters, key=lambda p: (COMPONENTS.index(p.component), p.category, p.option.name)))


def risks_of(name: str) -> tuple[Risk, ...]:
    """Return the declared risks of an option, for any value."""
    return tuple(risk for risk in RISKS if risk.concerns(Partition.CEPH, name))


def found_by(parameters: Iterable[Parameter], words: Iterable[str]) -> tuple[Parameter, ...]:
    """Return the parameters with all of these words in name or description; matches of the name come first."""
    required = [word.lower().replace("-", "_") for word in words]
    by_name, by_text = [], []
    for parameter in parameters:
        option = parameter.option
        text = f"{option.name} {option.description} {option.more} {parameter.component}".lower()
        if all(word in option.name for word in required):
            by_name.append(parameter)
        elif all(word in text for word in required):
            by_text.append(parameter)
    return (*by_name, *by_text)


def _place(name: str) -> tuple[str, str]:
    if name.startswith("mgr/"):
        return "manager", f"module {name.split('/')[1]}"
    words = name.split("_")
    component = _COMPONENT_OF.get(words[0], OTHER)
    if component == OTHER:
        return OTHER, words[0]
    main = _COMPONENTS[component][0]
    return component, words[0] if words[0] != main else (words[1] if len(words) > 1 else GENERAL)
