"""A target on which nothing goes wrong: what tests of workloads need in addition to its clients."""

from collections.abc import Mapping
from typing import Any

from cephfit.core.protocols import Applied, Health, Target
from cephfit.core.values.configuration import Configuration


class UntroubledTarget(Target):
    """Applies any configuration at once; its clients are a subclass's."""

    def facts(self) -> Mapping[str, Any]:
        return {}

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        return Applied(configuration.name, True, (), {})

    def drop_caches(self) -> None:
        pass

    def health(self) -> Health:
        return Health(True)

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass
