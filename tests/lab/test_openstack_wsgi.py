"""The WSGI scripts in the system's Python, which has OpenStack's modules."""

import subprocess
from pathlib import Path

import pytest

from cephfit.lab.openstack import components

_SCRIPT = """
import sys, threading
import eventlet
from oslo_config import cfg
from oslo_log import log
conf = cfg.ConfigOpts()
log.register_options(conf)
conf([])
log.setup(conf, "an API")
import logging
application = logging.threading.__name__
"""


def locks_of_logging(loaded: Path, script: Path) -> str:
    """The module of logging's locks after a WSGI script is loaded as by uWSGI."""
    program = f"import runpy; print(runpy.run_path({str(loaded)!r})['application'])"
    environment = {"CEPHFIT_WSGI_SCRIPT": str(script), "PATH": "/usr/bin"}
    done = subprocess.run(
        ["/usr/bin/python3", "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _oslo_log() -> int:
    """Major version of the system's oslo.log: 5 in Zed, 7 in 2025.1."""
    program = "from importlib.metadata import version; print(version('oslo.log').partition('.')[0])"
    return int(subprocess.run(["/usr/bin/python3", "-c", program], capture_output=True, check=True).stdout)


@pytest.mark.openstack
@pytest.mark.core
def test_threads_of_an_api_use_thread_locks_for_logging(tmp_path: Path) -> None:
    """Eventlet's locks, which the oslo.log of Zed installs without our script, can deadlock two threads."""
    script = tmp_path / "script"
    script.write_text(_SCRIPT)
    without = locks_of_logging(script, script)
    assert without == "threading" if _oslo_log() >= 7 else without.startswith("eventlet"), "is our script needed?"
    assert locks_of_logging(components._WSGI_SCRIPT, script) == "threading"
