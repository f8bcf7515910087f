"""A new cluster from nothing: keys, maps, monitor, manager, OSDs, rules and a pool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from cephfit import templates
from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.pools.osd_capacity import CAPACITY, FIRST_WITH_MCLOCK
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Progress
from cephfit.lab.daemons.ceph_daemons import MGR, MON, keyring_entry, new_key, osd_name, write_secret
from cephfit.lab.daemons.ceph_programs import CephPrograms, CephVersion
from cephfit.lab.daemons.osd_creation import OsdMaker
from cephfit.lab.devices.throttle import Throttle
from cephfit.lab.lab_spec import LabSpec

if TYPE_CHECKING:
    from cephfit.lab.parts import LabParts

N_STEPS = 6
"""How often ``bootstrap`` advances the progress."""

_ADMIN_CAPS = {"mon": "allow *", "osd": "allow *", "mds": "allow *", "mgr": "allow *"}
_MGR_CAPS = {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"}


def render(template: str, **values: Any) -> str:
    """Render a template of `templates/`; a missing value is an error."""
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    source = resources.files(templates).joinpath(template).read_text()
    return environment.from_string(source).render(**values)


def _send(admin: RadosAdmin, prefix: str, payload: bytes, **arguments: Any) -> bytes:
    """Send a monitor command with an input buffer, which ``CephAdmin`` does not support."""
    text = json.dumps({"prefix": prefix, **arguments, "format": "json"})
    code, answer, words = admin.cluster.mon_command(text, payload)
    if code:
        raise ClusterError(f"`{prefix}` was refused: {words} [{code}]", where="mon")
    return bytes(answer)


def crush_map_text(spec: LabSpec) -> str:
    """Return the lab's CRUSH map as text: hosts, classes, and the rules any, hdd, ssd and hybrid."""
    osds = [
        {"id": osd, "host": host, "device_class": device_class}
        for osd, (host, device_class) in enumerate(spec.osds)
    ]
    at = {(host, device_class): osd for osd, (host, device_class) in enumerate(spec.osds)}
    pairs = [{"ssd": at[h, "ssd"], "hdd": at[(h + 1) % spec.n_hosts, "hdd"]} for h in range(spec.n_hosts)]
    return render("crushmap.j2", osds=osds, hosts=range(spec.n_hosts), n_classes=len(spec.limits), pairs=pairs)


_OLD_CIPHERS = (
    "--auth-service-cipher",
    "aes",
    "--auth-allowed-ciphers",
    "aes,aes256k",
    "--auth-preferred-cipher",
    "aes",
)
"""Since 20.2.4, a new cluster allows only aes256k, which clients before it do not know."""
_CIPHER_CHECKS = (
    "AUTH_INSECURE_CLIENT_KEY_TYPE",
    "AUTH_INSECURE_KEYS_ALLOWED",
    "AUTH_INSECURE_KEYS_CREATABLE",
    "AUTH_INSECURE_ROTATING_SERVICE_KEY_TYPE",
    "AUTH_INSECURE_SERVICE_KEY_TYPE",
    "AUTH_INSECURE_SERVICE_TICKETS",
)
"""Health checks that warn of the old cipher; a lab listens only on 127.0.0.1."""


def _has_ciphers(programs: CephPrograms) -> bool:
    return "--auth-allowed-ciphers" in programs.run(["monmaptool", "--help"])


def _mute_old_ciphers(programs: CephPrograms, admin: RadosAdmin) -> None:
    if _has_ciphers(programs):
        for check in _CIPHER_CHECKS:
            admin.command("health mute", code=check, sticky=True)


def _make_monitor(programs: CephPrograms, folder: Path, conf: Path, fsid: str, mon_port: int) -> None:
    admin_key, mgr_key = new_key(), new_key()
    write_secret(folder / "keyring", keyring_entry("client.admin", admin_key, _ADMIN_CAPS))
    (folder / MGR).mkdir()
    write_secret(folder / MGR / "keyring", keyring_entry(MGR, mgr_key, {}))
    first_keys = folder / "first.keyring"
    write_secret(
        first_keys,
        keyring_entry("mon.", new_key(), {"mon": "allow *"})
        + keyring_entry("client.admin", admin_key, _ADMIN_CAPS)
        + keyring_entry(MGR, mgr_key, _MGR_CAPS),
    )
    (folder / MON).mkdir()
    monmap = folder / "monmap"
    address = f"[v1:127.0.0.1:{mon_port}]"
    ciphers = _OLD_CIPHERS if _has_ciphers(programs) else ()
    programs.run(["monmaptool", "--create", "--fsid", fsid, *ciphers, "--addv", "a", address, str(monmap)])
    argv = ["ceph-mon", "-c", str(conf), "--mkfs", "-i", "a", "--monmap", str(monmap)]
    programs.run([*argv, "--keyring", str(first_keys)])
    first_keys.unlink()


def options_of(spec: LabSpec, version: CephVersion) -> Mapping[str, Mapping[str, str]]:
    """Return the options of a lab: those of its specification, and since Quincy those of mClock.

    mClock's benchmark at the start of an OSD would measure the disk before its limits are set, and while other
    OSDs start. So the capacity is the disk's limit, and the lab's limits of recovery remain in force.
    """
    if version.major < FIRST_WITH_MCLOCK:
        return spec.options
    mclock = {"osd_mclock_skip_benchmark": "true", "osd_mclock_override_recovery_settings": "true"}
    for device_class, limits in spec.limits.items():
        mclock[f"{CAPACITY}{device_class}"] = str(limits.iops)
    return {**spec.options, "osd": {**spec.options.get("osd", {}), **mclock}}


def _set_options(admin: RadosAdmin, options: Mapping[str, Mapping[str, str]]) -> None:
    """Write the base options to the central config store."""
    text = ""
    for section, pairs in options.items():
        text += f"[{section}]\n" + "".join(f"{k} = {v}\n" for k, v in pairs.items() if not k.startswith("mgr/"))
        for key, value in pairs.items():
            if key.startswith("mgr/"):  # the monitor knows the options of modules only after a manager has run
                admin.command("config set", who=section, name=key, value=value, force=True)
    left = _send(admin, "config assimilate-conf", text.encode()).decode()
    refused = [line.strip() for line in left.splitlines() if "=" in line]
    if refused:
        raise ClusterError(f"this Ceph does not accept {', '.join(refused)}", where="options of the lab")


def _inject_crush_map(programs: CephPrograms, admin: RadosAdmin, folder: Path, spec: LabSpec) -> None:
    text, binary = folder / "crushmap.txt", folder / "crushmap"
    text.write_text(crush_map_text(spec))
    programs.run(["crushtool", "-c", str(text), "-o", str(binary)])
    _send(admin, "osd setcrushmap", binary.read_bytes())


def make_first_pool(admin: RadosAdmin, spec: LabSpec) -> None:
    """Create the pool of a new lab."""
    admin.command("osd pool create", pool=spec.pool, pg_num=spec.pg_num, pgp_num=spec.pg_num, rule="hdd")
    admin.command("osd pool application enable", pool=spec.pool, app="rbd")


def bootstrap(parts: LabParts, throttle: Throttle, progress: Progress) -> None:
    """Create the cluster and start its daemons; its PGs may not be active+clean yet when this returns.

    Args:
        parts: of the lab: its folder is empty except for its journal, and its disks are attached and empty.
        throttle: of the lab.

    Raises:
        CephfitError: a program or daemon failed; the caller must remove what was created.
    """
    folder, conf, spec, programs, daemons = parts.folder, parts.conf, parts.spec, parts.programs, parts.daemons
    fsid, mon_port = parts.record.fsid, parts.record.mon_port
    for part in ("run", "log", "crash"):
        (folder / part).mkdir()
    modules = programs.manager_modules()
    conf.write_text(
        render("ceph.conf.j2", name=parts.name, folder=folder, fsid=fsid, mon_port=mon_port, mgr_modules=modules)
    )
    _make_monitor(programs, folder, conf, fsid, mon_port)
    daemons.start(MON)
    progress.advance(detail="monitor")
    admin = RadosAdmin(conf)
    try:
        _set_options(admin, options_of(spec, programs.version()))
        _mute_old_ciphers(programs, admin)
        progress.advance(detail="options")
        maker = OsdMaker(folder, conf, parts.disks, throttle, admin, programs)
        osds = range(len(spec.osds))
        with ThreadPoolExecutor(max_workers=len(osds) + 1) as pool:
            manager = pool.submit(daemons.start, MGR)
            identities = {osd: maker.register(osd) for osd in osds}
            _inject_crush_map(programs, admin, folder, spec)
            progress.advance(detail="CRUSH map")

            def make_osd(osd: int) -> None:
                maker.make(osd, spec.store(osd), *identities[osd])
                daemons.start(osd_name(osd))

            made = [pool.submit(make_osd, osd) for osd in osds]
            manager.result()
            for future in made:
                future.result()
        progress.advance(detail="OSDs")
        make_first_pool(admin, spec)
        progress.advance(detail="pool")
    finally:
        admin.close()
