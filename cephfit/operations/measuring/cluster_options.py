"""Connection options of existing clusters, and what cephfit may change there."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


def is_existing_cluster(text: str) -> bool:
    """Return whether a target is a cluster that cephfit did not create, so that changes to it need ``--apply``."""
    kind, _, words = text.partition(":")
    return kind == "ceph" or (kind == "openstack" and any(word.startswith("ceph=") for word in words.split(",")))


@dataclass(frozen=True, slots=True)
class Presets:
    """Values from the environment and the configuration file: fields of ``ClusterOptions`` to values.

    Attributes:
        environment: from ``CEPHFIT_*`` variables; these override the others.
        targets: from the configuration file for one target, by its name up to the first comma.
        everywhere: from the configuration file for every cluster.
    """

    environment: Mapping[str, Any]
    targets: Mapping[str, Mapping[str, Any]]
    everywhere: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Options from the command line; None or empty where an option is not given.

    ``presets`` are values from the environment and the configuration file. They apply only to existing clusters
    (``for_target``), so that a simulation or a lab works with the same file.
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
        """Return the options for one target. The command line overrides the environment, which overrides the file.

        Args:
            text: of the target. Presets do not apply to a target that cephfit created.
        """
        return self.merged(text) if is_existing_cluster(text) else replace(self, presets=None)

    def merged(self, text: str) -> "ClusterOptions":
        """Return the options with presets applied; an empty text applies those for every cluster."""
        if self.presets is None:
            return self
        own = self.presets.targets.get(text.partition(",")[0], {})
        values = {**self.presets.everywhere, **own, **self.presets.environment}
        if self.only_pool:  # given on the command line, which allows none of these
            values = {name: v for name, v in values.items() if name not in ("restarts", "crush_rule", "pg_num")}
        return replace(self, presets=None, **values)

    def given(self) -> tuple[str, ...]:
        """Names of the given options, as on the command line."""
        return tuple(option for option, _ in self._given())

    def words(self) -> tuple[str, ...]:
        """Return the given options as command-line arguments, without passwords."""
        from cephfit.ceph.admin.fallback_admins import shown

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
