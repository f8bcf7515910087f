"""iSCSI, NFS and Swift targets pass the contract suite on real servers; other tests are on one protocol."""

import errno
import hashlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from backend_servers import opener, server_on
from target_contract import DEFAULT, VOLUME_NBYTES, Harness, TargetContract

from cephfit.ceph.environment.scopes import fault_of_key, fault_of_scope, fault_of_value
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.units import KIB, MIB
from cephfit.core.values.configuration import Configuration, Partition, Setting, Value
from cephfit.lab.daemons.processes import command_line, kill, of_folder
from cephfit.lab.devices.disks import loops_of
from cephfit.lab.devices.fuse_devices import reason_in
from cephfit.lab.lab_server import LabServer
from cephfit.measure.micro.file_access import NfsSession
from cephfit.targets.backends.backend_target import ExistingServer, ExportsVolumes, NbdServer, ServerPlace
from cephfit.targets.backends.iscsi_target import parse_iscsi
from cephfit.targets.backends.nfs_target import NfsTarget, parse_nfs
from cephfit.targets.backends.swift_target import SwiftAccount, key_from_environment, parse_swift

_DISK_NBYTES = 256 * MIB
_SWIFT_DISK_NBYTES = 512 * MIB
"""XFS needs 300M."""


def setting(scope: str, key: str, value: Value) -> Setting:
    return Setting(Partition.GREATER, scope, key, value)


DIGEST = Configuration(
    "digest", (setting("client_disk", "read_ahead_kb", 64), setting("iscsi", "header_digest", "crc32c"))
)
SERVER_CACHE = Configuration(
    "cache",
    (
        setting("iscsi", "first_burst_length", "128K"),
        setting("iscsi", "header_digest", "crc32c"),
        setting("iscsi", "immediate_data", False),
        setting("iscsi", "queue_depth", 4),
        setting("iscsi", "server_cache", True),
    ),
)
ASYNC = Configuration(
    "async", (setting("nfs", "rsize", "64K"), setting("nfs", "sync", False), setting("nfs", "wsize", 32768))
)
SEGMENTS = Configuration("segments", (setting("swift", "replicas", 2), setting("swift", "segment_size", "1M")))
SMALL_SEGMENTS = Configuration(
    "small", (setting("client_disk", "read_ahead_kb", 64), setting("swift", "segment_size", "256K"))
)
VERSION_3 = Configuration("v3", (setting("client_disk", "read_ahead_kb", 64), setting("nfs", "version", 3)))


_VERIFIED_WRITES = (
    "--direct=1",
    "--ioengine=libaio",
    "--rw=randwrite",
    "--iodepth=16",
    "--verify=crc32c",
    "--verify_state_save=0",
)


class _OnServer(TargetContract):
    protocol: str
    existing: bool
    other: Configuration

    @pytest.fixture
    def server(self, tmp_path: Path, loop_device: Callable[[int], Path]) -> Iterator[LabServer]:
        nbytes = _SWIFT_DISK_NBYTES if self.protocol == "swift" else _DISK_NBYTES
        with server_on(self.protocol, tmp_path, loop_device(nbytes)) as server:
            if self.existing and self.protocol == "iscsi":
                server.configure({"header_digest": "crc32c"})  # as an administrator would
            yield server

    @pytest.fixture
    def harness(self, server: LabServer, tmp_path: Path) -> Harness:
        open_target = opener(self.protocol, server, tmp_path, existing=self.existing)

        def state() -> object:
            exported = sorted(loops_of(tmp_path / "target")), sorted((tmp_path / "target" / "exports").glob("*"))
            return dict(server.read_back()), exported, _files(server)

        return Harness(open_target, self.other, n_clients=2, state=state)

    @pytest.mark.fio
    @pytest.mark.parametrize("size", ["12k", "64k", "1M"])
    def test_concurrent_writes_are_read_back_as_they_were_written(self, target: Any, size: str) -> None:
        target.apply(DEFAULT, n_clients=1, volume_nbytes=VOLUME_NBYTES, fill=False)
        (client,) = target.clients()
        argv = ["fio", "--name=v", f"--filename={client.device}", f"--bs={size}", "--size=16M", *_VERIFIED_WRITES]
        written = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert written.returncode == 0, written.stdout + written.stderr


def _files(server: Any) -> list[str]:
    if server.protocol == "swift":
        return [name for container in _containers(server) for name in _account(server).names(container, "")]
    if server.protocol != "nfs":
        return []
    return sorted(file.name for file in server._network.path(server._mounted_at).glob("*.img"))


@pytest.mark.root
@pytest.mark.backends
class TestIscsiOfLab(_OnServer):
    protocol, existing, other = "iscsi", False, SERVER_CACHE


@pytest.mark.root
@pytest.mark.backends
@pytest.mark.slow
class TestExistingIscsi(_OnServer):
    protocol, existing, other = "iscsi", True, DIGEST

    def test_the_clients_have_separate_parts_of_the_unit(self, target: Any, harness: Harness, server: Any) -> None:
        target.apply(DEFAULT, n_clients=2, volume_nbytes=VOLUME_NBYTES)
        for index, client in enumerate(target.clients()):
            with client.device.open("r+b") as stream:
                stream.write(bytes([65 + index]) * 4096)
        target.drop_caches()
        with server._device().open("rb") as disk:
            for index in range(2):
                disk.seek(index * VOLUME_NBYTES)
                assert disk.read(4096) == bytes([65 + index]) * 4096

    def test_a_digest_that_the_server_does_not_agree_to_is_a_mismatch(self, target: Any, server: Any) -> None:
        assert target.apply(DIGEST, n_clients=2, volume_nbytes=VOLUME_NBYTES).ok
        target.reset()
        server.configure({"header_digest": "none"})
        refused = target.apply(DIGEST, n_clients=2, volume_nbytes=VOLUME_NBYTES)
        assert refused.mismatches == tuple(f"c{i} has header_digest = none, not crc32c" for i in range(2))

    def test_a_unit_with_content_is_refused(self, harness: Harness, server: Any) -> None:
        subprocess.run(("mkswap", str(server._device())), check=True, capture_output=True)
        target = harness.open()
        try:
            with pytest.raises(InputError, match="not empty"):
                target.apply(DEFAULT, n_clients=1, volume_nbytes=VOLUME_NBYTES)
            assert loops_of(target._folder) == {}  # type: ignore[attr-defined]
        finally:
            target.reset()
            target.close()
        assert b"SWAPSPACE2" in server._device().read_bytes()[:8192]

    def test_a_file_system_that_a_workload_made_does_not_refuse_the_next_round(self, target: Any) -> None:
        target.apply(DEFAULT, n_clients=1, volume_nbytes=VOLUME_NBYTES)
        (client,) = target.clients()
        subprocess.run(("mkfs.ext4", "-q", "-F", str(client.device)), check=True)
        target.reset()
        assert target.apply(DEFAULT, n_clients=1, volume_nbytes=VOLUME_NBYTES).ok

    def test_a_unit_that_is_too_small_is_refused(self, target: Any) -> None:
        with pytest.raises(InputError, match=r"has 256M, but 512M are needed"):
            target.apply(DEFAULT, n_clients=2, volume_nbytes=256 * MIB)

    def test_it_refuses_what_client_and_server_lack(self, target: Any) -> None:
        many = Configuration(
            "many",
            (
                setting("iscsi", "data_digest", "crc32c"),
                setting("iscsi", "queue_depth", 4),
                setting("iscsi", "sessions", 2),
                Setting(Partition.POOL, "pool", "size", 3),
            ),
        )
        (why,) = target.unsupported([DEFAULT, many]).values()
        assert [sentence.split()[0] for sentence in why] == ["data", "queue_depth", "several", "size"]
        assert "libiscsi" in why[0]
        assert "only of a lab's server" in why[1]
        with pytest.raises(ClusterError, match="libiscsi"):
            target.apply(many, n_clients=1, volume_nbytes=VOLUME_NBYTES)

    def test_a_dead_client_program_is_noticed(self, target: Any) -> None:
        target.apply(DEFAULT, n_clients=1, volume_nbytes=VOLUME_NBYTES)
        kill(of_folder(target._folder))
        assert target.health().reasons == ("the connection of c0 is gone",)
        assert target.apply(DEFAULT, n_clients=1, volume_nbytes=VOLUME_NBYTES).ok
        assert target.health().ok


@pytest.mark.root
@pytest.mark.backends
class TestNfsOfLab(_OnServer):
    protocol, existing, other = "nfs", False, ASYNC


@pytest.mark.root
@pytest.mark.backends
@pytest.mark.slow
class TestExistingNfs(_OnServer):
    protocol, existing, other = "nfs", True, VERSION_3

    def test_it_keeps_to_its_own_files(self, target: Any, server: Any) -> None:
        precious = server._network.path(server._mounted_at) / "precious.img"
        precious.write_text("years of work")
        target.apply(DEFAULT, n_clients=2, volume_nbytes=VOLUME_NBYTES)
        files = _files(server)
        assert len(files) == 3
        target.reset()
        assert _files(server) == ["precious.img"]
        assert precious.read_text() == "years of work"

    def test_volumes_that_do_not_fit_are_refused(self, target: Any, server: Any) -> None:
        with pytest.raises(InputError, match="the export has"):
            target.apply(DEFAULT, n_clients=2, volume_nbytes=256 * MIB)
        assert _files(server) == []

    def test_a_newer_version_is_refused(self, target: Any) -> None:
        newer = Configuration("v4", (setting("nfs", "version", 4.2),))
        (why,) = target.unsupported([newer])["v4"]
        assert why == (
            "NFS version 4.2 is missing in QEMU's NFS driver, which mounts with version 3; it needs the kernel's "
            "NFS client"
        )


def _account(server: Any) -> SwiftAccount:
    address = parse_swift(server.address.partition(":")[2])
    return SwiftAccount(address, server.key, enter=server.enter)


def _containers(server: Any) -> list[str]:
    return _account(server)._swift("list").splitlines()


@pytest.mark.root
@pytest.mark.backends
@pytest.mark.slow
class TestSwiftOfLab(_OnServer):
    protocol, existing, other = "swift", False, SEGMENTS

    def test_each_number_of_copies_is_on_the_disk(self, target: Any, server: Any) -> None:
        three = Configuration("three", (setting("swift", "replicas", 3),))
        applied = target.apply(three, n_clients=1, volume_nbytes=MIB)
        assert applied.ok and applied.read_back[str(three.settings[0])] == {"c0": "3"}
        (client,) = target.clients()
        assert client.device.read_bytes()[:4096] != bytes(4096)
        copies = list(server._network.path(server._mounted_at).glob("d*/objects-2/**/*.data"))
        # Two segments of 512K; the proxy may return before the last copy is there.
        assert 4 <= len(copies) <= 6
        assert {copy.stat().st_size for copy in copies} == {512 * KIB}


@pytest.mark.root
@pytest.mark.backends
@pytest.mark.slow
class TestExistingSwift(_OnServer):
    protocol, existing, other = "swift", True, SMALL_SEGMENTS

    @pytest.fixture(autouse=True)
    def container(self, server: LabServer) -> None:
        _account(server).create("cephfit", "replicas-1")  # as a user would

    def test_a_write_of_a_part_changes_only_that_part_of_its_object(self, target: Any, server: Any) -> None:
        target.apply(DEFAULT, n_clients=1, volume_nbytes=2 * MIB)
        (client,) = target.clients()
        before = client.device.read_bytes()
        with client.device.open("r+b") as stream:
            stream.seek(508 * KIB)
            stream.write(bytes(8 * KIB))  # the end of one object and the beginning of the next
        target.drop_caches()
        after = client.device.read_bytes()
        assert after == before[: 508 * KIB] + bytes(8 * KIB) + before[516 * KIB :]
        names = _files(server)
        assert len(names) == 4
        state = _account(server).state("cephfit", names[1])
        assert state["ETag"] == hashlib.md5(after[512 * KIB : 1024 * KIB]).hexdigest()

    def test_it_keeps_to_its_own_objects(self, target: Any, server: Any, tmp_path: Path) -> None:
        (tmp_path / "precious").write_text("years of work")
        _account(server)._swift("upload", "cephfit", str(tmp_path / "precious"), "--object-name", "precious")
        target.apply(DEFAULT, n_clients=2, volume_nbytes=MIB)
        assert len(_files(server)) == 5
        target.reset()
        assert _files(server) == ["precious"]

    def test_its_key_is_in_no_command_line_and_no_file(self, target: Any, server: Any) -> None:
        target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB, fill=False)
        mentioned = [pid for pid in of_folder(target._folder) if server.key in " ".join(command_line(pid))]
        assert of_folder(target._folder) and not mentioned
        files = [file for file in target._folder.rglob("*") if file.is_file() and file.name != "disk"]
        assert files and not [file for file in files if server.key in file.read_text()]

    def test_it_refuses_what_client_and_server_lack(self, target: Any) -> None:
        many = Configuration("many", (setting("swift", "replicas", 2), setting("swift", "segment_size", "6G")))
        (why,) = target.unsupported([many]).values()
        assert "only of a lab's server" in why[0] and "largest object has 5G" in why[1]

    def test_a_wrong_key_and_a_missing_container_are_refused(self, server: Any) -> None:
        address = parse_swift(server.address.partition(":")[2])
        with pytest.raises(ClusterError, match="failed") as caught:
            SwiftAccount(address, "wrong-key", enter=server.enter).ask()
        assert "wrong-key" not in str(caught.value)
        with pytest.raises(ClusterError, match="not found"):
            _account(server).state("missing")


def test_a_swift_server_that_does_not_answer_is_named_without_the_words_of_a_library() -> None:
    account = SwiftAccount(parse_swift("//test:tester@127.0.0.1:1/volumes"), "a key")
    with pytest.raises(ClusterError) as caught:
        account.ask()
    assert caught.value.what == "no server answers: Connection refused"
    assert caught.value.where == "swift://127.0.0.1:1"


def test_the_reason_of_a_volume_that_is_not_served_is_without_the_driver_of_qemu() -> None:
    driver = 'json:{"driver": "raw", "file": {"driver": "iscsi"}}'
    log = (
        f"qemu-nbd: Failed to blk_new_open '{driver}': iSCSI: Failed to connect to LUN : iscsi_service failed\n\n"
        "nbd_connect_systemd_socket_activation: recv: Connection reset\n"
    )
    assert reason_in(log) == "qemu-nbd: iSCSI: Failed to connect to LUN : iscsi_service failed"
    assert reason_in("nbd_connect_command: no such file\n") == "nbd_connect_command: no such file"


def test_swift_addresses_are_read() -> None:
    address = parse_swift("//test:tester@192.0.2.7:8081/volumes")
    assert (address.user, address.host, address.container) == ("test:tester", "192.0.2.7:8081", "volumes")
    assert address.auth == "http://192.0.2.7:8081/auth/v1.0"
    assert parse_swift("test:tester@storage/volumes").host == "storage:8080"
    for text in ("", "//host/container", "//test@host/container", "//test:tester@host", "//a:b:secret@host/c"):
        with pytest.raises(InputError, match="not the address of a container") as caught:
            parse_swift(text)
        assert "secret" not in str(caught.value)


def test_the_key_of_swift_is_from_the_environment_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ST_KEY", raising=False)
    monkeypatch.setenv("ST_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(InputError, match="cannot be read"):
        key_from_environment()
    (tmp_path / "key").write_text("from-file\n")
    assert key_from_environment() == "from-file"
    monkeypatch.setenv("ST_KEY", "from-variable")
    assert key_from_environment() == "from-variable"


@pytest.mark.parametrize(
    ("text", "portal", "iqn", "lun"),
    [
        ("//192.0.2.7:3261/iqn.2026-01.org.example:disk/1", "192.0.2.7:3261", "iqn.2026-01.org.example:disk", 1),
        ("storage/iqn.2026-01.org.example/0", "storage:3260", "iqn.2026-01.org.example", 0),
        ("//[2001:db8::7]/eui.02004567A425678D/12", "[2001:db8::7]:3260", "eui.02004567A425678D", 12),
    ],
)
def test_iscsi_addresses_are_read(text: str, portal: str, iqn: str, lun: int) -> None:
    address = parse_iscsi(text)
    assert (address.portal, address.iqn, address.lun) == (portal, iqn, lun)
    assert parse_iscsi(str(address).removeprefix("iscsi:")) == address


@pytest.mark.parametrize("text", ["", "//host", "//host/iqn.2026-01.org.example", "//host/iqn.x/one", "lab2"])
def test_other_text_is_no_iscsi_address(text: str) -> None:
    with pytest.raises(InputError, match="not the address of a logical unit"):
        parse_iscsi(text)


def test_a_password_in_an_iscsi_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="CHAP is missing") as caught:
        parse_iscsi("//user%secret@host/iqn.2026-01.org.example/1")
    assert "secret" not in str(caught.value)


def test_nfs_addresses_are_read() -> None:
    assert str(parse_nfs("//192.0.2.7/srv/export/")) == "nfs://192.0.2.7/srv/export"
    assert parse_nfs("storage/export").host == "storage"
    for text in ("", "//host", "//host/", "host:/export?version=4"):
        with pytest.raises(InputError, match="not the address of an export"):
            parse_nfs(text)
    with pytest.raises(InputError, match="port of the server is missing in QEMU"):
        parse_nfs("//host:2050/export")


@pytest.mark.parametrize(
    ("scope", "key", "value", "fault"),
    [
        ("iscsi", "header_digest", "crc32c", ""),
        ("iscsi", "header_digest", "md5", "header_digest: 'md5' is not one of none, crc32c"),
        ("iscsi", "queue_depth", 0, "queue_depth: 0 is not a whole number of at least 1"),
        ("iscsi", "first_burst_length", "64K", ""),
        ("iscsi", "first_burst_length", "big", "first_burst_length: 'big' is not a size"),
        ("nfs", "version", 4.2, ""),
        ("nfs", "version", 2, "version: 2 is not one of 3, 4.0, 4.1, 4.2"),
        ("nfs", "sync", False, ""),
        ("swift", "segment_size", "64K", ""),
        ("swift", "segment_size", 512, "segment_size: 512 is not a whole number of at least 4096"),
        ("swift", "replicas", 4, "replicas: 4 is not one of 1, 2, 3"),
        ("nfs", "sync", "maybe", "sync: 'maybe' is not one of true, false"),
    ],
)
def test_values_of_protocol_options_are_checked(scope: str, key: str, value: Value, fault: str) -> None:
    assert fault_of_scope(scope) == "" and fault_of_key(scope, key) == ""
    assert fault_of_value(scope, key, value) == fault


def test_protocols_have_fixed_keys_and_no_mask() -> None:
    assert fault_of_key("nfs", "vers") == "nfs has no key 'vers'"
    assert "takes no mask" in fault_of_scope("iscsi/class:hdd")


def test_options_of_a_server_that_is_not_a_labs_are_refused() -> None:
    server = ExistingServer("nfs")
    assert server.why_not("sync").endswith("(cephfit lab up --with nfs)")
    assert "cannot be dropped" in server.why_caches_stay()


class _Export:
    """The files of an export whose server may not answer."""

    def __init__(self, *_: object, **__: object) -> None:
        self.files: dict[str, int] = {}
        self.answers = True

    def limits(self) -> dict[str, int]:
        return {"free": 1 << 40}

    def create(self, name: str, nbytes: int) -> bool:
        if not self.answers:
            raise ClusterError("the NFS server gave no answer within 30 s")
        if name in self.files:
            return False
        self.files[name] = nbytes
        return True

    def complete(self, name: str, nbytes: int) -> None:
        self.files[name] = max(nbytes, self.files.get(name, 0))

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


def test_a_file_whose_creation_was_cut_short_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server gave no answer, or a kill came between the journal and the file."""
    monkeypatch.setattr("cephfit.targets.backends.nfs_target.NfsFiles", _Export)
    place = ServerPlace("nfs://h/e", ExistingServer("nfs"), tmp_path, tmp_path / "lock", "nfs://h/e")
    target = NfsTarget("nfs://h/e", parse_nfs("h/e"), place, _NoDevices())
    export: Any = target._files
    export.answers = False
    with pytest.raises(ClusterError, match="no answer"):
        target._require_volumes(1, MIB, {})
    target._require_volumes(1, MIB, {})
    (volume,) = export.files
    assert export.files == {volume: MIB}
    export.files.clear()
    target._require_volumes(1, MIB, {})
    assert not export.files, "a filled file that somebody deleted does not come back empty"
    target.reset()
    assert not target.is_changed()
    export.files[volume] = MIB
    export.answers = True
    with pytest.raises(InputError, match="no journal on this machine knows it"):
        target._require_volumes(1, MIB, {})
    assert export.files == {volume: MIB}
    target.close()


class _NoDevices(ExportsVolumes):
    def attach(self, name: str, server: NbdServer, *, storage: str, folder: Path, enter: Sequence[str]) -> Path:
        raise AssertionError("nothing is attached")

    def device_of(self, name: str, *, folder: Path) -> Path | None:
        return None

    def detach(self, name: str, *, folder: Path) -> None:
        pass

    def detach_all(self, folder: Path) -> None:
        pass


class _Library:
    """libnfs with one answer to ``stat``."""

    def __init__(self, answer: int) -> None:
        self.answer = answer

    def nfs_stat64(self, *_: object) -> int:
        return self.answer

    def nfs_get_error(self, *_: object) -> bytes:
        return b"NFS3ERR_IO"


def test_a_file_that_cannot_be_looked_at_does_not_count_as_deleted() -> None:
    session: Any = NfsSession.__new__(NfsSession)
    session.context = None
    session.library = _Library(-errno.ENOENT)
    assert session.size_of("/v") is None
    session.library = _Library(-errno.EIO)
    with pytest.raises(OSError, match="NFS3ERR_IO"):
        session.size_of("/v")
