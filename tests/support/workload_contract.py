"""What must hold for every implementation of ``Workload``: one suite, run by test_workloads.py against each.

A harness gives the workload, a client with a volume for it, and ways in which it cannot run.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from cephfit.core.errors import CephfitError, ClusterError, InputError, LackingError
from cephfit.core.protocols import Client, Workload

SECONDS = 1.0
LAST_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Harness:
    """One implementation under test.

    Attributes:
        open: a workload; called again, another one with the same options.
        otherwise: one with another option.
        client: whose volume is large enough, and holds something that is no data of the workload.
        useless: a client like no other that the workload could use.
        least_nbytes: of a volume.
        choices: the random choices in a run's evidence; any comparable value.
        state: what of the world may not be different after a run; any value that compares.
        take_away: has this machine, or the guest, lack something from now on.
    """

    open: Callable[[], Workload]
    otherwise: Workload
    client: Client
    useless: Client
    least_nbytes: int
    choices: Callable[[Mapping[str, Any]], object]
    state: Callable[[], object]
    take_away: Callable[[pytest.MonkeyPatch], object]


class WorkloadContract:
    """Subclass with a fixture ``harness``, and a fixture ``prepared``: the same, its volume prepared before."""

    def test_it_names_itself_and_its_metric(self, harness: Harness) -> None:
        workload = harness.open()
        assert workload.name
        assert workload.metric
        assert (workload.name, workload.metric) == (harness.otherwise.name, harness.otherwise.metric)

    def test_its_description_tells_options_apart_and_is_the_same_for_the_same(self, harness: Harness) -> None:
        said = dict(harness.open().description())
        stored = json.loads(json.dumps(said, allow_nan=False))
        assert stored == said, "what is stored is compared with what is said later"
        assert isinstance(said["version"], int)
        assert said["version"] >= 1
        assert harness.open().description() == said
        assert harness.otherwise.description() != said

    def test_a_volume_that_is_too_small_is_refused_before_anything_is_done(self, harness: Harness) -> None:
        before = harness.state()
        small = replace(harness.client, nbytes=harness.least_nbytes - 1)
        assert_says_where(refusal(InputError, lambda: harness.open().prepare(small)), small)
        assert harness.state() == before

    def test_a_client_that_it_cannot_use_is_refused(self, harness: Harness) -> None:
        before = harness.state()
        for step in (harness.open().prepare, lambda client: harness.open().run(client, SECONDS, seed=1)):
            assert_says_where(refusal(InputError, lambda step=step: step(harness.useless)), harness.useless)
        assert harness.state() == before

    def test_a_volume_that_holds_something_else_gives_no_result(self, harness: Harness) -> None:
        before = harness.state()
        error = refusal(ClusterError, lambda: harness.open().run(harness.client, SECONDS, seed=1))
        assert error.where
        assert harness.state() == before

    def test_cleaning_up_twice_or_before_anything_is_safe(self, harness: Harness) -> None:
        before = harness.state()
        workload = harness.open()
        workload.cleanup(harness.client)
        workload.cleanup(harness.client)
        assert harness.state() == before

    def test_a_run_gives_its_metric_and_what_speaks_for_it(self, prepared: Harness) -> None:
        """By a workload that did not prepare the volume, as after a restart of the program."""
        before = prepared.state()
        workload = prepared.open()
        value, evidence = workload.run(prepared.client, SECONDS, seed=LAST_SEED)
        assert isinstance(value, float)
        assert 0 < value < math.inf
        kept = json.loads(json.dumps(dict(evidence), allow_nan=False))
        assert kept["seed"] == LAST_SEED
        assert kept["finished_ns"] - kept["started_ns"] >= 0.9e9 * SECONDS
        assert str(value)[:6] in kept["output"], "the program's own words"
        assert prepared.state() == before, "nothing runs and nothing is mounted between runs"
        again, other = (
            prepared.choices(workload.run(prepared.client, SECONDS, seed=seed)[1]) for seed in (LAST_SEED, 0)
        )
        assert prepared.choices(evidence) == again, "the seed decides on the random choices"
        assert prepared.choices(evidence) != other

    def test_data_are_put_in_the_place_of_older_ones(self, prepared: Harness) -> None:
        before = prepared.state()
        workload = prepared.open()
        workload.prepare(prepared.client)
        assert prepared.state() == before
        value, _ = workload.run(prepared.client, SECONDS, seed=3)
        assert value > 0
        workload.cleanup(prepared.client)
        workload.cleanup(prepared.client)
        assert prepared.state() == before

    def test_what_is_missing_for_every_run_differs_from_what_passes(
        self, prepared: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A verification tries again after anything else."""
        before = prepared.state()
        with monkeypatch.context() as patch:
            prepared.take_away(patch)
            error = refusal(LackingError, lambda: prepared.open().run(prepared.client, SECONDS, seed=1))
        assert error.what
        assert error.remedy
        assert prepared.state() == before


def refusal(kind: type[CephfitError], step: Callable[[], object]) -> CephfitError:
    with pytest.raises(kind) as caught:
        step()
    return caught.value


def assert_says_where(error: CephfitError, client: Client) -> None:
    assert f"client {client.name}" in error.where
    assert error.what
    assert error.remedy
