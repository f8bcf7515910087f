"""Two targets on one machine do not set its kernel's values over each other."""

import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from greater_examples import greater, osd

from cephfit.ceph.environment.host_settings import HostSettings
from cephfit.ceph.environment.kernel_values import HostLockedError, KernelLocks
from cephfit.ceph.host import Finished, HostRefusedError, LocalHost
from cephfit.ceph.host_access import Hosts
from cephfit.core.errors import HostError
from cephfit.core.journal import Journal
from cephfit.core.values.configuration import Configuration, Value

SYSCTL = "net.ipv4.tcp_notsent_lowat"
HOST = socket.gethostname()


def link_in(folder: Path) -> PurePosixPath:
    """A lock separate from the machine's: other tests may run."""
    return PurePosixPath(folder / "run" / "kernel-values")


@pytest.fixture(autouse=True)
def link(tmp_path: Path) -> Path:
    """Where the lock is; its folder is there."""
    place = Path(link_in(tmp_path))
    place.parent.mkdir()
    return place


@pytest.fixture
def sysctl() -> Iterator[Path]:
    file = Path("/proc/sys") / SYSCTL.replace(".", "/")
    before = file.read_text()
    yield file
    if os.geteuid() == 0:
        file.write_text(before)


def target(name: str, folder: Path) -> HostSettings:
    """Called again it is the next process."""
    journal = Journal(folder / name / "journal.jsonl")
    journal.path.parent.mkdir(exist_ok=True)
    return HostSettings(
        Hosts(), journal, osds=lambda: [osd(0, "loop0")], target=f"lab:{name}", lock=link_in(folder)
    )


@pytest.mark.root
def test_the_second_of_two_labs_sees_the_holder_of_the_machines_values(tmp_path: Path, sysctl: Path) -> None:
    at_first = sysctl.read_text()
    first, second = target("first", tmp_path), target("second", tmp_path)
    first.apply(greater(osd_host={SYSCTL: 2000001}), ())
    with pytest.raises(HostError, match=f"{HOST}: .*in use by another cephfit: lab:first on {HOST}") as caught:
        second.apply(greater(osd_host={SYSCTL: 2000002}), ())
    assert "cephfit restore" in str(caught.value)
    assert sysctl.read_text() == "2000001\n"
    second.restore()
    assert sysctl.read_text() == "2000001\n", "the second has nothing to put back"

    first.apply(Configuration("A"), ())
    with pytest.raises(HostError, match="lab:first"):
        second.apply(greater(osd_host={SYSCTL: 2000002}), ())
    first.restore()
    second.apply(greater(osd_host={SYSCTL: 2000002}), ())
    second.restore()
    assert sysctl.read_text() == at_first


@pytest.mark.root
def test_values_that_a_killed_process_left_stay_locked_until_they_are_restored(
    tmp_path: Path, sysctl: Path, link: Path
) -> None:
    at_first = sysctl.read_text()
    target("killed", tmp_path).apply(greater(osd_host={SYSCTL: 2000001}), ())
    with pytest.raises(HostError, match="lab:killed"):
        target("other", tmp_path).apply(greater(osd_host={SYSCTL: 2000002}), ())
    target("killed", tmp_path).restore()
    assert sysctl.read_text() == at_first
    assert not link.is_symlink()
    assert not Journal(tmp_path / "killed" / "journal.jsonl").entries()


@pytest.mark.root
def test_a_lock_whose_owner_is_gone_is_taken_over(tmp_path: Path, sysctl: Path, link: Path) -> None:
    target("gone", tmp_path).apply(greater(osd_host={SYSCTL: int(sysctl.read_text())}), ())
    (tmp_path / "gone" / "journal.jsonl").unlink()  # with its lab
    other = target("other", tmp_path)
    other.apply(greater(osd_host={SYSCTL: 2000002}), ())
    assert str(link.readlink()).startswith("lab:other on ")
    other.restore()


@pytest.mark.root
def test_only_an_admin_can_judge_the_lock_of_another_machine(tmp_path: Path, link: Path) -> None:
    link.symlink_to("ceph:prod on elsewhere, /srv/cephfit/clusters/5e0c/journal.jsonl")
    with pytest.raises(HostError, match="another cephfit: ceph:prod on elsewhere") as caught:
        target("ours", tmp_path).apply(greater(osd_host={SYSCTL: 2000001}), ())
    assert f"delete {link} there" in str(caught.value)
    assert not Journal(tmp_path / "ours" / "journal.jsonl").entries()


@pytest.mark.root
def test_disks_are_one_clusters_and_need_no_lock_of_the_machine(tmp_path: Path, link: Path) -> None:
    around = target("ours", tmp_path)
    around.apply(greater(osd_disk={"read_ahead_kb": Path("/sys/block/loop0/queue/read_ahead_kb").read_text()}), ())
    assert not link.is_symlink()
    around.restore()


def test_a_machine_that_makes_no_lock_changes_nothing(tmp_path: Path, link: Path, sysctl: Path) -> None:
    before = sysctl.read_text()
    link.parent.rmdir()
    with pytest.raises(HostRefusedError, match=r"no lock can be created: .*No such file or directory"):
        target("ours", tmp_path).apply(greater(osd_host={SYSCTL: 2000001}), ())
    assert sysctl.read_text() == before


BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize("files", ["7c1e33a0-0000-4000-8000-000000000000/mnt:[4026531840]", f"{BOOT}/mnt:[1]"])
def test_another_machine_of_our_name_and_a_container_on_ours_have_journals_that_we_do_not_see(
    files: str, tmp_path: Path, link: Path
) -> None:
    theirs = f"ceph:prod on {HOST}, {tmp_path}/theirs/journal.jsonl, {files}:5eed"
    link.symlink_to(theirs)
    with pytest.raises(HostLockedError, match=f"another cephfit: ceph:prod on {HOST}") as caught:
        locks("ours", tmp_path).take([HOST])
    assert f"its journal {tmp_path}/theirs/journal.jsonl is lost, delete {link} there" in str(caught.value)
    assert str(link.readlink()) == theirs


class Overtaken(LocalHost):
    """Before the first program that removes something runs, another one has done all of its work."""

    def __init__(self, other: Callable[[], None]) -> None:
        super().__init__(HOST)
        self._other = other

    def run(self, argv: Sequence[str], **options: Any) -> Finished:
        if argv[0] in ("rm", "mv", "flock"):
            other, self._other = self._other, lambda: None
            other()
        return super().run(argv, **options)


def locks(name: str, folder: Path, host: Any = None) -> KernelLocks:
    journal = Journal(folder / name / "journal.jsonl")
    journal.path.parent.mkdir(exist_ok=True)
    hosts = Hosts() if host is None else Machines(host)
    return KernelLocks(hosts, journal, target=f"lab:{name}", link=link_in(folder))


@pytest.mark.parametrize("faster", ["another", "gone"])
def test_of_two_targets_that_find_a_stale_lock_only_the_first_gets_it(
    faster: str, tmp_path: Path, link: Path
) -> None:
    """The faster one may be the target that had the lock, created again."""
    locks("gone", tmp_path).take([HOST])
    (tmp_path / "gone" / "journal.jsonl").unlink()
    slower = locks("slower", tmp_path, Overtaken(lambda: locks(faster, tmp_path).take([HOST])))
    with pytest.raises(HostLockedError, match=f"another cephfit: lab:{faster} on {HOST}"):
        slower.take([HOST])
    assert slower.hosts() == ()
    locks(faster, tmp_path).take_again(HOST)
    locks(faster, tmp_path).give_up([HOST])
    assert not link.is_symlink()
    slower.take([HOST])
    assert str(link.readlink()).startswith("lab:slower on ")


def test_a_lock_that_cannot_be_removed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Immovable(LocalHost):
        def run(self, argv: Sequence[str], **options: Any) -> Finished:
            return super().run(argv, **options) if argv[0] != "flock" else Finished(1, "", "find: not permitted")

    ours = locks("ours", tmp_path, Immovable(HOST))
    ours.take([HOST])
    with pytest.raises(HostRefusedError, match="the lock cannot be removed: find: not permitted"):
        ours.give_up([HOST])
    assert ours.hosts() == (HOST,)
    again = locks("ours", tmp_path)
    again.give_up([HOST])
    assert again.hosts() == ()


class Machine:
    """A separate machine with a lock and files in memory.

    Attributes:
        is_away: it does not answer.
        loses: a program whose answer is lost after it did its work.
    """

    def __init__(self, name: str, files: dict[str, str]) -> None:
        self.name = name
        self.files = files
        self.lock = ""
        self.is_away = False
        self.loses = ""

    def run(self, argv: Sequence[str], **_: Any) -> Finished:
        self._answer()
        done = Finished(0, "", "")
        match argv[0]:
            case "ln" if self.lock:
                done = Finished(1, "", "ln: File exists")
            case "ln":
                self.lock = argv[-2]
            case "readlink":
                done = Finished(0, f"{self.lock}\n", "") if self.lock else Finished(1, "", "")
            case "flock" if re.sub(r"\\(.)", r"\1", argv[argv.index("-lname") + 1]) == self.lock:
                self.lock = ""
        if argv[0] == self.loses:
            raise HostError("no answer within 30 s", where=self.name)
        return done

    def read_all(self, paths: Sequence[PurePosixPath]) -> dict[PurePosixPath, str]:
        self._answer()
        return {path: self.files[str(path)] for path in paths if str(path) in self.files}

    def write(self, path: PurePosixPath, text: str) -> None:
        self._answer()
        self.files[str(path)] = text

    def _answer(self) -> None:
        if self.is_away:
            raise HostError("no answer", where=self.name)


class Machines(Hosts):
    def __init__(self, *machines: Machine) -> None:
        super().__init__()
        self._by_name = {machine.name: machine for machine in machines}

    def named(self, name: str) -> Any:
        return self._by_name[name]


SWAPPINESS = "/proc/sys/vm/swappiness"
SWAPPED: dict[str, Value] = {"vm.swappiness": 1}


@pytest.fixture
def machines() -> tuple[Machine, ...]:
    return tuple(Machine(name, {SWAPPINESS: "60"}) for name in ("h1", "h2", "h3"))


def on_machines(
    machines: Sequence[Machine], journal: Path, name: str = "ceph", *, osds_on: Sequence[Machine] | None = None
) -> HostSettings:
    with_osds = machines if osds_on is None else osds_on
    osds = [osd(number, "sda", host=machine.name) for number, machine in enumerate(with_osds)]
    return HostSettings(Machines(*machines), Journal(journal), osds=lambda: osds, target=name)


def left(journal: Path) -> list[str]:
    return [f"{entry.kind} {entry.place}" for entry in Journal(journal).entries()]


@pytest.mark.parametrize("trouble", ["no answer", "another cephfit: ceph:b on elsewhere"])
def test_one_lost_lock_does_not_block_other_hosts(
    trouble: str, machines: tuple[Machine, ...], tmp_path: Path
) -> None:
    journal = tmp_path / "journal.jsonl"
    first, *others = machines
    on_machines(machines, journal).apply(greater(osd_host=SWAPPED), ())
    ours = first.lock
    if trouble == "no answer":
        first.is_away = True
    else:  # it has booted, and another was there before us
        first.lock = "ceph:b on elsewhere, /journal.jsonl"
    with pytest.raises(HostError, match=trouble):
        on_machines(machines, journal).restore()
    assert [machine.files[SWAPPINESS] for machine in machines] == ["1", "60", "60"]
    assert [machine.lock for machine in others] == ["", ""]
    assert sorted(left(journal)) == ["host file h1:/proc/sys/vm/swappiness", "lock on kernel values of h1"]

    first.is_away, first.lock = False, ours
    on_machines(machines, journal).restore()
    assert (first.files[SWAPPINESS], first.lock, left(journal)) == ("60", "", [])


def test_a_host_whose_value_does_not_go_back_stays_locked(machines: tuple[Machine, ...], tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    on_machines(machines, journal).apply(greater(osd_host=SWAPPED), ())
    machines[1].write = lambda path, text: None  # type: ignore[method-assign]
    with pytest.raises(HostRefusedError, match="is 1 again"):
        on_machines(machines, journal).restore()
    assert [bool(machine.lock) for machine in machines] == [False, True, False]
    assert sorted(left(journal)) == ["host file h2:/proc/sys/vm/swappiness", "lock on kernel values of h2"]


def test_a_lock_is_ours_by_whatever_name_the_target_was_called(
    machines: tuple[Machine, ...], tmp_path: Path
) -> None:
    journal = tmp_path / "journal.jsonl"
    on_machines(machines, journal, "ceph:prod").apply(greater(osd_host=SWAPPED), ())  # and killed
    on_machines(machines, journal, "ceph").apply(greater(osd_host={"vm.swappiness": 2}), ())
    assert machines[0].lock.startswith("ceph:prod on ")
    on_machines(machines, journal, "ceph").restore()
    assert [(machine.files[SWAPPINESS], machine.lock) for machine in machines] == [("60", "")] * 3
    assert left(journal) == []


def test_a_lock_is_ours_whatever_this_machine_is_called_now(
    machines: tuple[Machine, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal.jsonl"
    on_machines(machines, journal).apply(greater(osd_host=SWAPPED), ())
    monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
    on_machines(machines, journal).restore()
    assert [(machine.files[SWAPPINESS], machine.lock) for machine in machines] == [("60", "")] * 3


def test_a_lock_created_without_an_answer_is_released_later(machines: tuple[Machine, ...], tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    machines[0].loses = "ln"
    with pytest.raises(HostError, match="no answer within 30 s"):
        on_machines(machines, journal).apply(greater(osd_host=SWAPPED), ())
    assert machines[0].lock
    assert left(journal) == ["lock on kernel values of h1"]
    machines[0].loses = ""
    on_machines(machines, journal).restore()
    assert machines[0].lock == ""
    assert left(journal) == []


def test_a_lock_that_was_never_created_does_not_wait_for_its_holder(
    machines: tuple[Machine, ...], tmp_path: Path
) -> None:
    journal = tmp_path / "journal.jsonl"
    machines[0].is_away = True
    with pytest.raises(HostError, match="no answer"):
        on_machines(machines, journal).apply(greater(osd_host=SWAPPED), ())
    machines[0].is_away, machines[0].lock = False, "ceph:b on elsewhere, /journal.jsonl"
    on_machines(machines, journal).restore()
    assert machines[0].lock.startswith("ceph:b")
    assert left(journal) == []


def of_an_earlier_version(journal: Path) -> str:
    """Its lock has neither files nor token, and its journal has no token."""
    before = Journal(journal)
    before.note("lock on kernel values of", "h1", None)
    before.note("host file", f"h1:{SWAPPINESS}", "60")
    return f"ceph on {HOST}, {journal}"


@pytest.mark.parametrize("does", ["apply", "restore"])
@pytest.mark.parametrize("holder", ["ours", "none after a boot", "another's"])
def test_changes_of_an_earlier_version_are_continued_and_restored(
    holder: str, does: str, machines: tuple[Machine, ...], tmp_path: Path
) -> None:
    journal, first = tmp_path / "journal.jsonl", machines[0]
    ours = of_an_earlier_version(journal)
    first.files[SWAPPINESS] = "1"
    first.lock = {"ours": ours, "none after a boot": "", "another's": f"ceph on {HOST}, /another{journal}"}[holder]
    around = on_machines(machines[:1], journal)
    if holder == "another's":
        with pytest.raises(HostLockedError, match=f"another cephfit: ceph on {HOST}\n") as caught:
            around.restore() if does == "restore" else around.apply(greater(osd_host=SWAPPED), ())
        assert f"its journal /another{journal} is lost" in str(caught.value.remedy)
        assert first.files[SWAPPINESS] == "1"
        first.lock = ""
    elif does == "apply":
        around.apply(greater(osd_host={"vm.swappiness": 2}), ())
        assert first.files[SWAPPINESS] == "2"
        assert first.lock.startswith(ours)
    on_machines(machines[:1], journal).restore()
    assert (first.files[SWAPPINESS], first.lock, left(journal)) == ("60", "", [])


@pytest.mark.parametrize("kill", range(1, 6))
@pytest.mark.parametrize("does", ["apply", "restore"])
@pytest.mark.parametrize("holder", ["ours", "none after a boot", "another's"])
def test_after_a_kill_at_any_write_of_the_journal_values_can_be_restored_under_the_lock(
    holder: str,
    does: str,
    kill: int,
    machines: tuple[Machine, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal, (first, second, _) = tmp_path / "journal.jsonl", machines
    ours = of_an_earlier_version(journal)
    first.files[SWAPPINESS] = "1"
    another = f"ceph on elsewhere, {journal}"
    first.lock = {"ours": ours, "none after a boot": "", "another's": another}[holder]
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt, HostLockedError):
        patch.setattr(Journal, "_append", killed_after(kill))
        around = on_machines(machines[:2], journal)
        around.restore() if does == "restore" else around.apply(greater(osd_host={"vm.swappiness": 2}), ())

    if holder == "another's":
        with suppress(HostLockedError):
            on_machines(machines[:2], journal, osds_on=[second]).apply(greater(osd_host={"vm.swappiness": 3}), ())
        with pytest.raises(HostLockedError, match="another cephfit: ceph on elsewhere\n"):
            on_machines(machines[:2], journal).restore()
        assert (first.files[SWAPPINESS], first.lock) == ("1", another)
        first.lock = ""
    on_machines(machines[:2], journal).restore()
    assert [(machine.files[SWAPPINESS], machine.lock) for machine in (first, second)] == [("60", "")] * 2
    assert left(journal) == []
    on_machines(machines[:2], journal, "another").apply(greater(osd_host=SWAPPED), ())


def killed_after(n_writes: int) -> Callable[[Journal, Any], None]:
    """Journals write so often, and end the process then."""
    append, done = Journal._append, iter(range(1, n_writes))

    def write(journal: Journal, line: Any) -> None:
        append(journal, line)
        if next(done, None) is None:
            raise KeyboardInterrupt

    return write


def test_a_lock_of_an_earlier_version_is_removed_when_it_is_given_up(tmp_path: Path, link: Path) -> None:
    journal = tmp_path / "ours" / "journal.jsonl"
    journal.parent.mkdir()
    Journal(journal).note("lock on kernel values of", HOST, None)
    link.symlink_to(f"lab:ours on {HOST}, {journal}")
    ours = locks("ours", tmp_path)
    ours.give_up([HOST])
    assert (link.is_symlink(), ours.hosts()) == (False, ())


def test_a_lock_without_a_token_is_not_ours_where_our_own_has_one(tmp_path: Path, link: Path) -> None:
    ours = locks("ours", tmp_path)
    ours.take([HOST])
    link.unlink()
    link.symlink_to(f"lab:ours on {HOST}, {tmp_path}/ours/journal.jsonl")
    with pytest.raises(HostLockedError):
        ours.take_again(HOST)
