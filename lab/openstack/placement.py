"""Placement: the free resources of the compute host."""

from cephfit.lab.openstack.component import Component, Migration, uwsgi
from cephfit.lab.openstack.layout import Layout


def component(layout: Layout) -> Component:
    """Placement."""
    environment = {"OS_PLACEMENT_CONFIG_DIR": str(layout.folder / "etc")}
    return Component(
        "placement",
        files=("placement.conf",),
        folders=("placement/lock",),
        databases=("placement",),
        migrations=(
            Migration(
                ("placement-manage", "--config-file", str(layout.conf("placement")), "db", "sync"), environment
            ),
        ),
        apis=(
            uwsgi(
                layout,
                "placement",
                port=layout.ports["placement"],
                program="/usr/bin/placement-api",
                environment=environment,
            ),
        ),
    )
