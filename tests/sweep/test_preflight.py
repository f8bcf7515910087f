"""A sweep with an unknown option is refused before hours of it are skipped."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from cephfit.core.errors import InputError
from cephfit.core.values.configuration import Configuration
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.preflight import unsupported_by
from cephfit.sweep.sweep_plan import Sweep

SWEEP = """\
schema_version: 1
name: typed
description: options, some of which are gone and some of which never were
configurations:
  A: {}
  B:
    ceph: {osd: {OPTIONS}}
measurement: {sizes: [4K], patterns: [randread], clients: 1, volume_size: 16M, repeats: 1, ramp_seconds: 0,
  run_seconds: 1, ioengine: rbd, iodepth: 1, direct: true, cache: warm, seed: 1}
"""


def sweep_with(options: str) -> Sweep:
    return parse_sweep(SWEEP.replace("OPTIONS", options), file="typed.yaml")


class Catalogue:
    """The options of a cluster."""

    def find(self, key: str) -> Any:
        return key if key in self.names() else None

    def names(self) -> tuple[str, ...]:
        return ("osd_op", "osd_max_backfills")


class Cluster:
    """A target that reports missing options in its own words."""

    name = "ceph"

    def catalogue(self) -> Catalogue:
        return Catalogue()

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        found = {
            c.name: tuple(
                f"this Ceph has no option {s.key}" if s.key == "osd_op_threads" else f"what is {s.key}?"
                for s in c.settings
                if s.key not in Catalogue().names()
            )
            for c in configurations
        }
        return {name: why for name, why in found.items() if why}


def test_a_typing_error_is_reported_with_its_line_for_every_target() -> None:
    cluster: Any = Cluster()
    with pytest.raises(InputError, match="no option osd_max_backfils") as caught:
        unsupported_by(cluster, sweep_with("osd_max_backfils: 3"))
    assert caught.value.where == "sweep typed, line 7, configuration B"
    assert caught.value.remedy == "did you mean osd_max_backfills?"


def test_an_option_is_not_confused_with_one_of_the_same_prefix() -> None:
    """``osd_op`` exists only on this cluster. Some releases have ``osd_op_threads``: B is skipped."""
    cluster: Any = Cluster()
    found = unsupported_by(cluster, sweep_with("osd_op: 1, osd_op_threads: 4"))
    assert found == {"B": ("this Ceph has no option osd_op_threads",)}
