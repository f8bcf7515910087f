"""Two sweeps do not meet on a cluster, from whatever machines; a dead holder is seen or can be overruled."""

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cephfit.ceph.admin import cluster_lock
from cephfit.ceph.admin.answers import LOCK_PREFIX
from cephfit.ceph.admin.cluster_lock import ClusterLock
from cephfit.core.errors import ClusterError


class KeyStore:
    """The monitors' key-value store: every command is atomic, in one order for all."""

    def __init__(self) -> None:
        self.content: dict[str, str] = {}
        self.others: dict[str, str] = {}
        """Differences of Luminous: its `config-key dump` takes no key."""
        self.around_set: Callable[[], object] = lambda: None

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        key = arguments["key"]
        if prefix == "config-key dump":
            return {k: v for k, v in self.content.items() if k.startswith(key)} | self.others
        if prefix == "config-key set":
            self.around_set()
            self.content[key] = arguments["val"]
            self.around_set()
        else:
            assert prefix == "config-key rm"
            self.content.pop(key, None)
        return None

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        raise AssertionError("a lock asks the monitors only")

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        raise AssertionError("a lock asks the monitors only")

    def close(self) -> None:
        pass


class Machine:
    """One folder of state, as one user of one machine has it."""

    def __init__(self, store: KeyStore, folder: Path) -> None:
        folder.mkdir()
        self.store, self.folder = store, folder
        self.left = 0
        self.notes: list[str] = []

    def lock(self, *, take_over: bool = False) -> ClusterLock:
        return ClusterLock(
            self.store,
            self.folder,
            target="ceph:test",
            n_left=lambda: self.left,
            note=self.notes.append,
            take_over=take_over,
        )


@pytest.fixture
def store() -> KeyStore:
    return KeyStore()


@pytest.fixture
def here(store: KeyStore, tmp_path: Path) -> Machine:
    return Machine(store, tmp_path / "here")


@pytest.fixture
def there(store: KeyStore, tmp_path: Path) -> Machine:
    return Machine(store, tmp_path / "there")


def holder_of(store: KeyStore) -> dict[str, Any]:
    (text,) = store.content.values()
    holder: dict[str, Any] = json.loads(text)
    return holder


def put_elsewhere(store: KeyStore, **changed: Any) -> None:
    """The one holder becomes a process of another machine."""
    (key,) = store.content
    store.content[key] = json.dumps(holder_of(store) | {"host": "far", "processes": "another boot"} | changed)


def test_a_second_sweep_is_refused_and_sees_the_holder(here: Machine, there: Machine) -> None:
    here.lock()
    with pytest.raises(ClusterError, match=f"another cephfit is at work .*process {os.getpid()}, seen "):
        there.lock()
    assert holder_of(here.store)["folder"] == str(here.folder)


def test_a_released_lock_leaves_nothing(here: Machine, there: Machine) -> None:
    here.lock().release()
    assert here.store.content == {}
    there.lock().release()


def test_changes_that_are_left_keep_others_away_but_not_their_owner(here: Machine, there: Machine) -> None:
    lock = here.lock()
    here.left = 3
    lock.release()
    with pytest.raises(ClusterError, match="ended and left 3 changes"):
        there.lock()
    again = here.lock()
    here.left = 0
    again.release()
    there.lock().release()


def test_the_dead_of_this_machine_are_seen_to_be_dead(here: Machine, there: Machine) -> None:
    here.lock()
    dead = subprocess.Popen(["true"])
    dead.wait()
    (key,) = here.store.content
    here.store.content[key] = json.dumps(holder_of(here.store) | {"pid": dead.pid})
    there.lock().release()
    assert "is taken over" in there.notes[0]


def test_the_dead_of_another_machine_are_overruled_only_by_word(here: Machine, there: Machine) -> None:
    here.lock()
    put_elsewhere(here.store, left=2)
    with pytest.raises(ClusterError, match=r"another cephfit is at work.* on far") as error:
        there.lock()
    assert "--take-over" in error.value.remedy
    assert f"only from far:{here.folder}" in error.value.remedy
    there.lock(take_over=True)
    assert holder_of(there.store)["folder"] == str(there.folder)
    assert "2 changes can be undone only from far" in there.notes[0]


def test_whoever_was_overruled_notices_before_it_changes_anything(here: Machine, there: Machine) -> None:
    lock = here.lock()
    there.lock(take_over=True)
    lock.renew()  # not due yet: cheap
    with pytest.raises(ClusterError, match="another process took this cluster's lock"):
        lock.renew(at_once=True)


def test_of_two_at_the_same_instant_at_most_one_gets_it(here: Machine, there: Machine) -> None:
    """Both have seen no lock and write their keys; then both read."""
    here.store.around_set = threading.Barrier(2, timeout=30).wait
    got: list[ClusterLock] = []
    refused: list[str] = []

    def try_it(machine: Machine) -> None:
        try:
            got.append(machine.lock())
        except ClusterError as error:
            refused.append(error.what)

    threads = [threading.Thread(target=try_it, args=(m,)) for m in (here, there)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) <= 1
    assert len(refused) >= 1
    assert len(here.store.content) == len(got)


def test_it_shows_now_and_then_that_it_lives(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = here.lock()
    before = holder_of(here.store)["seen_s"]
    monkeypatch.setattr(cluster_lock, "_RENEWAL_SECONDS", 0.0)
    lock.renew()
    assert holder_of(here.store)["seen_s"] > before


def test_a_key_of_another_version_is_named(here: Machine) -> None:
    here.store.content[LOCK_PREFIX + "old"] = "{}"
    with pytest.raises(ClusterError, match="not a lock of this version") as error:
        here.lock()
    assert "ceph config-key rm cephfit/lock/old" in error.value.remedy


def test_keys_of_others_are_none_of_the_locks_business(here: Machine, there: Machine) -> None:
    """MonCommands.h of 12.2: COMMAND("config-key dump", "dump keys and values", ...), without an argument."""
    here.store.others = {"dm-crypt/osd/8d1c0c5e/luks": "c2VjcmV0", "mgr/dashboard/server_addr": "::"}
    lock = here.lock()
    with pytest.raises(ClusterError, match="another cephfit is at work"):
        there.lock()
    lock.renew(at_once=True)
    lock.release()
    there.lock().release()
    assert here.store.content == {}


class Killed(BaseException):
    """Ends a process at once."""


def test_a_kill_at_the_start_does_not_hide_what_an_earlier_process_left(here: Machine, there: Machine) -> None:
    lock = here.lock()
    here.left = 3
    lock.release()

    def die() -> None:
        raise Killed

    here.store.around_set = die
    with pytest.raises(Killed):
        here.lock()
    here.store.around_set = lambda: None
    with pytest.raises(ClusterError, match="ended and left 3 changes"):
        there.lock()
