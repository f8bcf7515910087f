"""A new cluster from nothing: keys, maps, monitor, manager, OSDs, rules and a pool."""

import base64
import json
import os
import struct
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from cephfit import templates
from cephfit.errors import ClusterError
from cephfit.lab.daemons import MGR, MON, Daemons, osd_name
from cephfit.lab.machine import run
from cephfit.lab.spec import LabSpec
from cephfit.protocols import Progress
from cephfit.sweep.admin.rados_admin import RadosAdmin

N_STEPS = 6
"""How often ``bootstrap`` advances the progress."""

_ADMIN_CAPS = {"mon": "allow *", "osd": "allow *", "mds": "allow *", "mgr": "allow *"}
_MGR_CAPS = {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"}


def render(template: str, **values: Any) -> str:
    """A template of the templates room as text; a name it needs and does not get is an error."""
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    source = resources.files(templates).joinpath(template).read_text()
    return environment.from_string(source).render(**values)


def _new_key() -> str:
    """A cephx key: type 1 (AES), creation time, length, 16 random bytes (Ceph's src/auth/Crypto.cc)."""
    return base64.b64encode(struct.pack("<hiih", 1, int(time.time()), 0, 16) + os.urandom(16)).decode()


def _keyring_entry(entity: str, key: str, caps: Mapping[str, str]) -> str:
    lines = [f"[{entity}]", f"\tkey = {key}", *(f'\tcaps {who} = "{what}"' for who, what in caps.items())]
    return "\n".join(lines) + "\n"


def write_secret(file: Path, text: str) -> None:
    """Write a file that only its owner ever can read."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:  # noqa: PTH123
        stream.write(text)


def _ask(admin: RadosAdmin, prefix: str, payload: bytes, **arguments: Any) -> bytes:
    """A monitor command with an input buffer, which ``CephAdmin`` has no need for elsewhere."""
    text = json.dumps({"prefix": prefix, **arguments, "format": "json"})
    code, answer, words = admin.cluster.mon_command(text, payload)
    if code:
        raise ClusterError(f"`{prefix}` was refused: {words} [{code}]", where="mon")
    return bytes(answer)


def crush_map_text(spec: LabSpec) -> str:
    """The lab's CRUSH map as text: hosts, classes, and the rules any, hdd, ssd and hybrid."""
    osds = [
        {"id": osd, "host": host, "device_class": device_class}
        for osd, (host, device_class) in enumerate(spec.osds)
    ]
    at = {(host, device_class): osd for osd, (host, device_class) in enumerate(spec.osds)}
    pairs = [{"ssd": at[h, "ssd"], "hdd": at[(h + 1) % spec.n_hosts, "hdd"]} for h in range(spec.n_hosts)]
    return render("crushmap.j2", osds=osds, hosts=range(spec.n_hosts), n_classes=len(spec.limits), pairs=pairs)


def _make_monitor(folder: Path, conf: Path, fsid: str, mon_port: int) -> None:
    admin_key, mgr_key = _new_key(), _new_key()
    write_secret(folder / "keyring", _keyring_entry("client.admin", admin_key, _ADMIN_CAPS))
    (folder / MGR).mkdir()
    write_secret(folder / MGR / "keyring", _keyring_entry(MGR, mgr_key, {}))
    first_keys = folder / "first.keyring"
    write_secret(
        first_keys,
        _keyring_entry("mon.", _new_key(), {"mon": "allow *"})
        + _keyring_entry("client.admin", admin_key, _ADMIN_CAPS)
        + _keyring_entry(MGR, mgr_key, _MGR_CAPS),
    )
    (folder / MON).mkdir()
    monmap = folder / "monmap"
    address = f"[v1:127.0.0.1:{mon_port}]"
    run(["monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, str(monmap)])
    run(["ceph-mon", "-c", str(conf), "--mkfs", "-i", "a", "--monmap", str(monmap), "--keyring", str(first_keys)])
    first_keys.unlink()


def _set_options(admin: RadosAdmin, options: Mapping[str, Mapping[str, str]]) -> None:
    """Put the base options into the central config store."""
    text = ""
    for section, pairs in options.items():
        text += f"[{section}]\n" + "".join(f"{k} = {v}\n" for k, v in pairs.items() if not k.startswith("mgr/"))
        for key, value in pairs.items():
            if key.startswith("mgr/"):  # the monitor knows modules' options only once a manager has run
                admin.command("config set", who=section, name=key, value=value, force=True)
    left = _ask(admin, "config assimilate-conf", text.encode()).decode()
    refused = [line.strip() for line in left.splitlines() if "=" in line]
    if refused:
        raise ClusterError(f"this Ceph does not take {', '.join(refused)}", where="options of the lab")


def _register_osd(admin: RadosAdmin, folder: Path, osd: int) -> str:
    """Give the OSD its id, key and folder; returns its UUID."""
    osd_uuid, key = str(uuid.uuid4()), _new_key()
    given = json.loads(_ask(admin, "osd new", json.dumps({"cephx_secret": key}).encode(), uuid=osd_uuid))
    if given["osdid"] != osd:
        raise ClusterError(f"the monitor gave id {given['osdid']} to osd.{osd}", where="mon")
    home = folder / osd_name(osd)
    home.mkdir()
    write_secret(home / "keyring", _keyring_entry(osd_name(osd), key, {}))
    return osd_uuid


def _inject_crush_map(admin: RadosAdmin, folder: Path, spec: LabSpec) -> None:
    text, binary = folder / "crushmap.txt", folder / "crushmap"
    text.write_text(crush_map_text(spec))
    run(["crushtool", "-c", str(text), "-o", str(binary)])
    _ask(admin, "osd setcrushmap", binary.read_bytes())


def bootstrap(
    *,
    name: str,
    folder: Path,
    conf: Path,
    fsid: str,
    mon_port: int,
    spec: LabSpec,
    disks: Mapping[int, Path],
    daemons: Daemons,
    progress: Progress,
) -> None:
    """Make the cluster and start its daemons; it may not be whole yet when this returns.

    Args:
        folder: exists and is empty but for the lab's journal.
        disks: block device of each OSD.

    Raises:
        CephfitError: a program or daemon failed; what was made so far stays for the caller to remove.
    """
    for part in ("run", "log", "crash"):
        (folder / part).mkdir()
    conf.write_text(render("ceph.conf.j2", name=name, folder=folder, fsid=fsid, mon_port=mon_port))
    _make_monitor(folder, conf, fsid, mon_port)
    daemons.start(MON)
    progress.advance(detail="monitor")
    admin = RadosAdmin(conf)
    try:
        _set_options(admin, spec.options)
        progress.advance(detail="options")
        with ThreadPoolExecutor(max_workers=len(disks) + 1) as pool:
            manager = pool.submit(daemons.start, MGR)
            uuids = {osd: _register_osd(admin, folder, osd) for osd in disks}
            _inject_crush_map(admin, folder, spec)
            progress.advance(detail="CRUSH map")

            def make_osd(osd: int) -> None:
                (folder / osd_name(osd) / "block").symlink_to(disks[osd])
                run(["ceph-osd", "-c", str(conf), "-i", str(osd), "--mkfs", "--osd-uuid", uuids[osd]])
                daemons.start(osd_name(osd))

            made = [pool.submit(make_osd, osd) for osd in disks]
            manager.result()
            for future in made:
                future.result()
        progress.advance(detail="OSDs")
        admin.command("osd pool create", pool=spec.pool, pg_num=spec.pg_num, pgp_num=spec.pg_num, rule="hdd")
        admin.command("osd pool application enable", pool=spec.pool, app="rbd")
        progress.advance(detail="pool")
    finally:
        admin.close()
