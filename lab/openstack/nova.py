"""Nova, with libvirt and QEMU below it: the guests."""

from cephfit.lab.openstack.component import Component, Migration
from cephfit.lab.openstack.layout import Layout
from cephfit.lab.openstack.services import Service


def component(layout: Layout) -> Component:
    """Nova with one cell and one compute host, which is this machine."""
    conf = ("--config-file", str(layout.conf("nova")))
    manage = ("nova-manage", *conf)
    cell0 = layout.database_url("nova_cell0")
    return Component(
        "nova",
        files=("nova.conf",),
        folders=("nova/lock", "nova/instances"),
        databases=("nova_api", "nova_cell0", "nova"),
        migrations=(
            Migration((*manage, "api_db", "sync")),
            Migration((*manage, "cell_v2", "map_cell0", "--database_connection", cell0)),
            Migration((*manage, "db", "sync")),
            Migration((*manage, "cell_v2", "create_cell", "--name", "cell1")),
        ),
        apis=(
            Service("nova-api", ("nova-api", *conf), port=layout.ports["nova"]),
            Service("nova-conductor", ("nova-conductor", *conf)),
            Service("nova-scheduler", ("nova-scheduler", *conf)),
        ),
        agents=(Service("nova-compute", ("nova-compute", *conf)),),
    )
