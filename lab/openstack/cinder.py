"""Cinder: volumes on the lab's Ceph, a back end and a volume type for each device class."""

from cephfit.lab.openstack.component import Component, Migration
from cephfit.lab.openstack.layout import Layout
from cephfit.lab.openstack.services import Service


def component(layout: Layout) -> Component:
    """Cinder with an RBD back end for each of ``layout.pools``."""
    conf = ("--config-file", str(layout.conf("cinder")))
    return Component(
        "cinder",
        files=("cinder.conf",),
        folders=("cinder/lock", "cinder/conversion", "cinder/coordination"),
        databases=("cinder",),
        migrations=(Migration(("cinder-manage", *conf, "db", "sync")),),
        apis=(
            Service("cinder-api", ("cinder-api", *conf), port=layout.ports["cinder"]),
            Service("cinder-scheduler", ("cinder-scheduler", *conf)),
        ),
        agents=(Service("cinder-volume", ("cinder-volume", *conf)),),
    )
