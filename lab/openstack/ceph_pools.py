"""The pools of Cinder's back ends, and the key with which Cinder and the guests open them."""

from pathlib import Path

from cephfit.lab.keyrings import write_secret
from cephfit.lab.openstack import configuration
from cephfit.lab.openstack.infrastructure import ceph_key_file
from cephfit.lab.openstack.layout import Layout
from cephfit.sweep.admin.rados_admin import RadosAdmin

CLIENT = "client.cinder"
PG_NUM = 16


def pool_name(device_class: str) -> str:
    """The Ceph pool of a device class's volumes."""
    return f"volumes-{device_class}"


def create(layout: Layout, *, conf: Path, fsid: str, mon_port: int) -> None:
    """Make a pool for each back end by the CRUSH rule of its device class, and the files of their user.

    Args:
        conf: the lab's ceph.conf.
    """
    admin = RadosAdmin(conf)
    try:
        for device_class, pool in layout.pools.items():
            admin.command("osd pool create", pool=pool, pg_num=PG_NUM, pgp_num=PG_NUM, rule=device_class)
            admin.command("osd pool application enable", pool=pool, app="rbd")
        # Pools that are made later, by a sweep, are open to it as well: the lab is one person's.
        caps = ["mon", "profile rbd", "osd", "profile rbd", "mgr", "profile rbd"]
        (entry,) = admin.command("auth get-or-create", entity=CLIENT, caps=caps)
    finally:
        admin.close()
    home = layout.home("ceph")
    home.mkdir(parents=True, exist_ok=True)
    write_secret(home / f"ceph.{CLIENT}.keyring", f"[{CLIENT}]\n\tkey = {entry['key']}\n")
    write_secret(ceph_key_file(layout), entry["key"])
    configuration.write(layout, home / "ceph.conf", "ceph.conf", fsid=fsid, mon_port=mon_port)
