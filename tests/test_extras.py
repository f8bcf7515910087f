"""Without extras and without Ceph, every module that does not need them can be imported."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = (
    *("asyncssh", "cephclient", "dask", "distributed", "fsspec", "keystoneauth1", "matplotlib", "novaclient"),
    *("openstack", "optuna", "pandas", "psycopg", "pyarrow", "rados", "rbd", "tenacity"),
)
FOR_OPENSTACK = ("lab/openstack", "cloud/", "targets/openstack")
"""The only modules that may fail to import: the command line imports them when an OpenStack is named."""

LOADING = """
import importlib, sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
for module in sys.argv[2:]:
    importlib.import_module(module)
"""


def test_every_module_outside_openstacks_loads_without_the_extras() -> None:
    modules = []
    for room in ("cephfit", "traces", "ceph", "measure", "cloud", "targets", "sweep", "mapper", "results", "lab"):
        for file in sorted((ROOT / room).rglob("*.py")):
            place = file.relative_to(ROOT)
            if not str(place).startswith(FOR_OPENSTACK) and "heat_templates" not in place.parts:
                modules.append(
                    ".".join((*(() if room == "cephfit" else ("cephfit",)), *place.with_suffix("").parts))
                )
    assert len(modules) > 300
    argv = [sys.executable, "-c", LOADING, ",".join(EXTRAS), *(m.removesuffix(".__init__") for m in modules)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
