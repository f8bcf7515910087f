"""Heat: stacks. Its two APIs also listen on the guests' network, where guests signal that they are done."""

from cephfit.lab.openstack.component import Component, Migration, uwsgi
from cephfit.lab.openstack.layout import Layout
from cephfit.lab.openstack.services import Service


def component(layout: Layout) -> Component:
    """Heat with its CloudFormation API, which serves the older kind of signal."""
    arguments = f"--config-file {layout.conf('heat')}"
    return Component(
        "heat",
        files=("heat.conf",),
        folders=("heat/lock",),
        databases=("heat",),
        migrations=(Migration(("heat-manage", *arguments.split(), "db_sync")),),
        apis=(
            uwsgi(
                layout,
                "heat-api",
                port=layout.ports["heat"],
                program="/usr/bin/heat-wsgi-api",
                arguments=arguments,
                for_guests=True,
            ),
            uwsgi(
                layout,
                "heat-api-cfn",
                port=layout.ports["heat_cfn"],
                program="/usr/bin/heat-wsgi-api-cfn",
                arguments=arguments,
                for_guests=True,
            ),
            Service("heat-engine", ("heat-engine", *arguments.split())),
        ),
    )
