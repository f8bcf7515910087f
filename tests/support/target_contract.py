"""What must hold for every implementation of ``protocols.Target``: one suite, run by test_targets.py against each.

A harness gives the target and two configurations of it that differ in something it can set.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cephfit.core.errors import CephfitError
from cephfit.core.protocols import Target
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration
from cephfit.targets import abilities
from cephfit.targets.abilities import JudgesConfigurations

VOLUME_NBYTES = 32 * MIB
DEFAULT = Configuration("A")


@dataclass(frozen=True, slots=True)
class Harness:
    """One implementation under test.

    Attributes:
        open: opens the target for change; called again to act as the next process.
        other: a configuration with a setting that it can apply.
        n_clients: that the suite asks for.
        state: what of the world may not be different after ``reset``; any value that compares.
    """

    open: Callable[[], Target]
    other: Configuration
    n_clients: int
    state: Callable[[], object]


class TargetContract:
    """Subclass with a fixture ``harness``; the fixture ``target`` opens and closes."""

    @pytest.fixture
    def target(self, harness: Harness):  # type: ignore[no-untyped-def]
        target = harness.open()
        yield target
        target.reset()
        target.close()

    def test_its_facts_are_json_without_secrets(self, target: Target) -> None:
        text = json.dumps(dict(target.facts()), allow_nan=False)
        assert len(text) > 2
        assert "==" not in text, "a key in base64 ends so"

    def test_its_name_says_its_kind(self, target: Target) -> None:
        assert target.name.partition(":")[0] in ("lab", "ceph", "sim", "local", "iscsi", "nfs", "swift")

    def test_applying_gives_clients_that_fio_can_reach(self, target: Target, harness: Harness) -> None:
        applied = target.apply(DEFAULT, n_clients=harness.n_clients, volume_nbytes=VOLUME_NBYTES)
        assert applied.ok, applied.mismatches
        assert applied.configuration == "A"
        assert applied.seconds >= 0
        clients = target.clients()
        assert [c.name for c in clients] == [f"c{i}" for i in range(harness.n_clients)]
        assert all(c.nbytes == VOLUME_NBYTES for c in clients)
        assert all(c.device is None or Path(c.device).is_block_device() for c in clients)
        json.dumps(dict(applied.read_back), allow_nan=False)

    def test_every_setting_is_read_back(self, target: Target, harness: Harness) -> None:
        applied = target.apply(harness.other, n_clients=harness.n_clients, volume_nbytes=VOLUME_NBYTES)
        assert applied.ok, applied.mismatches
        assert set(applied.read_back) >= {str(setting) for setting in harness.other.settings}

    def test_applying_the_default_again_takes_the_other_back(self, target: Target, harness: Harness) -> None:
        for configuration in (harness.other, DEFAULT, DEFAULT):
            applied = target.apply(configuration, n_clients=harness.n_clients, volume_nbytes=VOLUME_NBYTES)
            assert applied.ok, applied.mismatches
        assert target.health().ok

    def test_it_is_healthy_and_may_be_asked_by_several_threads(self, target: Target, harness: Harness) -> None:
        target.apply(DEFAULT, n_clients=harness.n_clients, volume_nbytes=VOLUME_NBYTES)
        answers: list[bool] = []
        threads = [threading.Thread(target=lambda: answers.append(target.health().ok)) for _ in range(4)]
        for thread in threads:
            thread.start()
        target.drop_caches()
        for thread in threads:
            thread.join()
        assert answers == [True] * 4

    def test_it_has_the_abilities_that_its_class_names_and_no_others(self, target: Target) -> None:
        offered = [one for one in vars(abilities).values() if getattr(one, "__module__", "") == abilities.__name__]
        assert {one for one in offered if isinstance(target, one)} == {*offered} & {*type(target).__mro__}

    def test_it_says_beforehand_what_it_cannot_do(self, target: Target, harness: Harness) -> None:
        if isinstance(target, JudgesConfigurations):
            assert not target.unsupported([DEFAULT, harness.other])

    def test_reset_brings_back_what_was_and_may_be_called_twice(self, harness: Harness) -> None:
        before = harness.state()
        target = harness.open()
        try:
            target.apply(harness.other, n_clients=harness.n_clients, volume_nbytes=VOLUME_NBYTES)
            target.reset()
            target.reset()
        finally:
            target.close()
        assert harness.state() == before

    def test_the_next_process_resets_what_one_left(self, harness: Harness) -> None:
        before = harness.state()
        first = harness.open()
        try:
            first.apply(harness.other, n_clients=harness.n_clients, volume_nbytes=VOLUME_NBYTES)
        finally:
            first.close()
        second = harness.open()
        try:
            second.reset()
        finally:
            second.close()
        assert harness.state() == before

    def test_two_at_once_are_refused_or_harmless(self, target: Target, harness: Harness) -> None:
        """A target that changes the world takes a lock; the simulated one touches nothing."""
        try:
            other = harness.open()
        except CephfitError as error:
            assert "another cephfit" in error.what
        else:
            other.close()
            assert target.name.startswith("sim")
