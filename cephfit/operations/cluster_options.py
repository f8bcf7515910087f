"""How to connect to an existing cluster, and what is allowed there: the values of the options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


def is_existing_cluster(text: str) -> bool:
    """Whether a target is a cluster that cephfit did not create, so that changes to it need ``--apply``."""
    kind, _, words = text.partition(":")
    return kind == "ceph" or (kind == "openstack" and any(word.startswith("ceph=") for word in words.split(",")))


@dataclass(frozen=True, slots=True)
class Presets:
    """Values that no command line gives: fields of ``ClusterOptions`` to values.

    Attributes:
        environment: of ``CEPHFIT_*`` variables; these go before the others.
        targets: the configuration file's for one target, by its name up to the first comma.
        everywhere: the configuration file's for every cluster.
    """

    environment: Mapping[str, Any]
    targets: Mapping[str, Mapping[str, Any]]
    everywhere: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What a person said of a cluster on the command line; None and empty where nothing was said.

    ``presets`` is what the environment and the configuration file say besides: it concerns only targets that are
    clusters of other people (``for_target``), so that a simulation or a lab works with such a file, too.
    """

    conf: Path | None = None
    client_id: str | None = None
    keyring: Path | None = None
    admin: str = "rados"
    rest_url: str | None = None
    only_pool: str | None = None
    restarts: str | None = None
    ssh: bool = False
    ssh_user: str | None = None
    ssh_config: Path | None = None
    ssh_hosts: tuple[str, ...] = ()
    crush_rule: str | None = None
    pg_num: int | None = None
    take_over: bool = False
    presets: Presets | None = None

    def for_target(self, text: str) -> "ClusterOptions":
        """What holds for one target: the command line before the environment, and that before the file.

        Args:
            text: of the target. Presets do not concern one that cephfit made.
        """
        return self.merged(text) if is_existing_cluster(text) else replace(self, presets=None)

    def merged(self, text: str) -> "ClusterOptions":
        """The same for a target that presets concern; an empty text is no target's."""
        if self.presets is None:
            return self
        own = self.presets.targets.get(text.partition(",")[0], {})
        values = {**self.presets.everywhere, **own, **self.presets.environment}
        if self.only_pool:  # given on the command line, which allows none of these
            values = {name: v for name, v in values.items() if name not in ("restarts", "crush_rule", "pg_num")}
        return replace(self, presets=None, **values)

    def given(self) -> tuple[str, ...]:
        """Options that were given, as they are typed."""
        return tuple(option for option, _ in self._given())

    def words(self) -> tuple[str, ...]:
        """The same with their values: the part of a command line that says all this again, but no password."""
        from cephfit.ceph.admin.rest_admin import shown

        words: list[str] = []
        for option, value in self._given():
            if value is True:
                words.append(option)
            else:
                for one in value if isinstance(value, tuple) else (value,):
                    words += [option, shown(one) if option == "--rest-url" else str(one)]
        return tuple(words)

    def _given(self) -> list[tuple[str, Any]]:
        plain = ClusterOptions()
        fields = [name for name in self.__slots__ if name != "presets"]
        names = [name for name in fields if getattr(self, name) != getattr(plain, name)]
        spelled = {"client_id": "--id", "ssh_hosts": "--ssh-host"}
        return [(spelled.get(name, "--" + name.replace("_", "-")), getattr(self, name)) for name in names]
