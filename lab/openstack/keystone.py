"""Keystone: identities of users and services, and the addresses of the APIs."""

from cephfit.lab.openstack.component import Component, Migration, uwsgi
from cephfit.lab.openstack.layout import Layout


def component(layout: Layout) -> Component:
    """Keystone, with the project ``admin`` and the user ``admin`` in it."""
    conf = str(layout.conf("keystone"))
    manage = ("keystone-manage", "--config-file", conf)
    as_root = ("--keystone-user", "root", "--keystone-group", "root")
    url = layout.url("keystone")
    return Component(
        "keystone",
        files=("keystone.conf",),
        folders=("keystone/fernet", "keystone/credential"),
        databases=("keystone",),
        migrations=(
            Migration((*manage, "db_sync")),
            Migration((*manage, "fernet_setup", *as_root)),
            Migration((*manage, "credential_setup", *as_root)),
            Migration(
                (*manage, "bootstrap"),
                {
                    "OS_BOOTSTRAP_PASSWORD": layout.secrets["admin"],
                    "OS_BOOTSTRAP_REGION_ID": layout.region,
                    "OS_BOOTSTRAP_ADMIN_URL": url,
                    "OS_BOOTSTRAP_INTERNAL_URL": url,
                    "OS_BOOTSTRAP_PUBLIC_URL": url,
                },
            ),
        ),
        apis=(
            uwsgi(
                layout,
                "keystone",
                port=layout.ports["keystone"],
                program="/usr/bin/keystone-wsgi-public",
                environment={
                    "OS_KEYSTONE_CONFIG_FILES": conf,
                    "OS_KEYSTONE_CONFIG_DIR": str(layout.folder / "etc"),
                },
            ),
        ),
    )
