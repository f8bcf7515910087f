"""Images of two clusters with the same names on one machine: their devices are never confused.

The kernel that these were written on has no nbd: an ``rbd`` that answers as Ceph's does takes its place, and the
processes behind its devices are real ones, known by their arguments.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cephfit.lab.devices import image_export
from cephfit.lab.devices.image_export import ImageAddress, KrbdExport, NbdExport

RBD = """#!{python} -IS
import json, os, pathlib, subprocess, sys
folder = pathlib.Path({folder!r})
conf, words = sys.argv[2], sys.argv[5:]
mapped = {{f.name: json.loads(f.read_text()) for f in folder.glob("nbd*")}}
if words[1] == "list":
    print(json.dumps(list(mapped.values())))
elif words[1] == "map":
    pool, image = words[-1].split("/")
    name = next(f"nbd{{n}}" for n in range(9) if f"nbd{{n}}" not in mapped)
    # The command line of rbd-nbd; this process sleeps.
    sleep = [sys.executable, "-IS", "-c", "import time; time.sleep(600)", "--conf", conf, "map", words[-1]]
    pid = subprocess.Popen(sleep, stdin=-3, stdout=-3, stderr=-3, start_new_session=True).pid
    entry = {{"id": pid, "pool": pool, "namespace": "", "image": image, "snap": "-", "device": f"/dev/{{name}}"}}
    (folder / name).write_text(json.dumps(entry))
    print(entry["device"])
else:
    file = folder / words[-1].rpartition("/")[2]
    os.kill(json.loads(file.read_text())["id"], 15)
    file.unlink()
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A simulated machine with one file per mapping."""
    folder = tmp_path / "machine"
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "rbd"
    program.write_text(RBD.format(python=sys.executable, folder=str(folder)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    yield folder
    for file in folder.glob("nbd*"):
        subprocess.run(("kill", str(json.loads(file.read_text())["id"])), check=False)


def nbd_of(cluster: str, folder: Path) -> NbdExport:
    """The export path of the same pool and image of a cluster."""
    home = folder / cluster / "exports" / "cephfit-default@c0"
    home.mkdir(parents=True, exist_ok=True)
    conf = folder / cluster / "client.conf"
    conf.write_text(f"[global]\nfsid = {cluster}\n")
    return NbdExport(home, ImageAddress("cephfit-default", "c0", conf, "admin", 1 << 30))


def kill(mapping: Path) -> None:
    """The rbd-nbd behind a device dies: the device is free for the next one."""
    subprocess.run(("kill", str(json.loads(mapping.read_text())["id"])), check=True)
    mapping.unlink()


def test_images_of_the_same_name_are_distinguished_by_their_clusters(machine: Path, tmp_path: Path) -> None:
    ours, theirs = nbd_of("ours", tmp_path), nbd_of("theirs", tmp_path)
    assert theirs.attach() == Path("/dev/nbd0")
    assert ours.device() is None, "it is not attached, and what is listed is theirs"
    assert ours.attach() == Path("/dev/nbd1")
    assert (ours.device(), theirs.device()) == (Path("/dev/nbd1"), Path("/dev/nbd0"))
    ours.detach()
    assert ours.device() is None
    assert theirs.device() == Path("/dev/nbd0"), "its device is not taken away while it is used"
    theirs.detach()
    assert list(machine.glob("nbd*")) == []


def test_a_reused_device_is_not_attributed_to_the_old_image(machine: Path, tmp_path: Path) -> None:
    ours, theirs = nbd_of("ours", tmp_path), nbd_of("theirs", tmp_path)
    ours.attach()
    kill(machine / "nbd0")
    assert theirs.attach() == Path("/dev/nbd0")
    assert ours.device() is None
    ours.detach()
    assert theirs.device() == Path("/dev/nbd0")
    theirs.detach()


def test_another_mapping_of_our_image_is_not_the_device_that_was_attached(machine: Path, tmp_path: Path) -> None:
    ours = nbd_of("ours", tmp_path)
    ours.attach()
    by_hand = nbd_of("ours", tmp_path)
    (machine / "nbd0").rename(tmp_path / "aside")
    nbd_of("theirs", tmp_path).attach()  # nbd0
    by_hand._rbd("map", "--device-type", "nbd", "cephfit-default/c0")  # nbd1
    kill(tmp_path / "aside")
    assert ours.device() is None, "fio works on nbd0, which is another cluster's now"
    ours.detach()
    assert [file.name for file in machine.glob("nbd*")] == ["nbd0"], "all of ours is taken away, nothing of theirs"


def test_an_interrupted_mapping_is_removed(machine: Path, tmp_path: Path) -> None:
    ours = nbd_of("ours", tmp_path)
    ours.attach()
    (tmp_path / "ours" / "exports" / "cephfit-default@c0" / "device").unlink()
    assert ours.device() is None
    ours.detach()
    assert list(machine.glob("nbd*")) == []


def test_krbd_reports_the_cluster_of_a_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = json.dumps(
        [{"id": n, "pool": "p", "namespace": "", "name": "i", "snap": "-", "device": f"/dev/rbd{n}"} for n in "01"]
    )
    for number, fsid in (("0", "theirs"), ("1", "ours")):
        (tmp_path / number).mkdir()
        (tmp_path / number / "cluster_fsid").write_text(f"{fsid}\n")
    monkeypatch.setattr(image_export, "_RBD_BUS", tmp_path)
    monkeypatch.setattr(image_export, "run", lambda argv: listing if "list" in argv else "/dev/rbd1\n")
    conf = tmp_path / "client.conf"
    conf.write_text("[global]\nfsid = ours\n")
    krbd = KrbdExport(tmp_path, ImageAddress("p", "i", conf, "admin", 1 << 30))
    assert krbd.device() is None, "not attached from here"
    assert krbd.attach() == krbd.device() == Path("/dev/rbd1")
    conf.write_text("[global]\nfsid = another\n")
    assert krbd.device() is None
