"""The services' configuration files, from the templates."""

from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from cephfit import templates
from cephfit.lab.ceph_daemons import write_secret
from cephfit.lab.openstack.components import Component
from cephfit.lab.openstack.layout import Layout


def _environment() -> jinja2.Environment:
    def source(name: str) -> str:
        return resources.files(templates).joinpath(name).read_text()

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )


def render(template: str, **values: Any) -> str:
    """Render a template below ``templates/openstack``; a missing value is an error."""
    return _environment().get_template(f"openstack/{template}.j2").render(**values)


def write(layout: Layout, file: Path, template: str, **values: Any) -> None:
    """Render into a file that only root can read: most of these hold passwords."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_secret(file, render(template, cloud=layout, **values))


def write_all(layout: Layout, components: Iterable[Component]) -> None:
    """Create the folders of all components; write their files and the clouds.yaml."""
    for folder in ("etc", "log", "run"):
        (layout.folder / folder).mkdir(exist_ok=True)
    (layout.folder / "etc").chmod(0o700)
    for component in components:
        for folder in component.folders:
            layout.home(folder).mkdir(parents=True, exist_ok=True)
        for name in component.files:
            write(layout, layout.conf(name), name)
    clouds = (
        {"name": layout.admin_cloud, "user": "admin", "project": "admin", "password": layout.secrets["admin"]},
        {"name": layout.user_cloud, "user": "cephfit", "project": "cephfit", "password": layout.secrets["user"]},
    )
    write(layout, layout.clouds_yaml, "clouds.yaml", clouds=clouds)
