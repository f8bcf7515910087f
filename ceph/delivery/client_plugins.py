"""Plugins of librbd on the machine of the clients: not every distribution builds all of them."""

from pathlib import Path

from cephfit.ceph.delivery.client_conf import client_settings
from cephfit.core.optional_modules import optional_module
from cephfit.core.values.configuration import Configuration

_OPTION = "rbd_plugins"
_FILE = "librbd/libceph_librbd_{name}.so"
"""Of a plugin, below the option ``plugin_dir`` (``src/common/PluginRegistry.cc``)."""


def why_no_plugins(configuration: Configuration, folder: Path | None = None) -> tuple[str, ...]:
    """Return why clients on this machine cannot load the plugins of a configuration; empty if they can.

    Without its plugin, librbd does not open an image.

    Args:
        configuration: to apply; ``rbd_plugins`` of its clients is a list separated by commas.
        folder: with Ceph's plugins; None: where this machine's librados looks for them.
    """
    settings = [setting for setting in client_settings(configuration) if setting.key == _OPTION]
    names = [name.strip() for setting in settings for name in str(setting.value).split(",") if name.strip()]
    if not names:
        return ()
    place = folder or Path(optional_module("rados").Rados(rados_id="admin").conf_get("plugin_dir"))
    return tuple(
        f"librbd on this machine has no plugin {name}: there is no {place / _FILE.format(name=name)}"
        for name in names
        if not (place / _FILE.format(name=name)).exists()
    )
