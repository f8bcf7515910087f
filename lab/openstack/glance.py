"""Glance: the guests' images, as files in the lab's folder."""

from cephfit.lab.openstack.component import Component, Migration
from cephfit.lab.openstack.layout import Layout
from cephfit.lab.openstack.services import Service


def component(layout: Layout) -> Component:
    """Glance with a file store."""
    conf = ("--config-file", str(layout.conf("glance-api")))
    return Component(
        "glance",
        files=("glance-api.conf",),
        folders=("glance/lock", "glance/images", "glance/staging", "glance/tasks"),
        databases=("glance",),
        migrations=(Migration(("glance-manage", *conf, "db_sync")),),
        apis=(Service("glance-api", ("glance-api", *conf), port=layout.ports["glance"]),),
    )
