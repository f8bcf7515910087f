"""What uWSGI serves, in the system's Python, which has OpenStack's modules."""

import subprocess
from pathlib import Path

import pytest

from cephfit.lab.openstack import component

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
    """The module of the locks that logging has when a WSGI script was loaded as uWSGI does it."""
    program = f"import runpy; print(runpy.run_path({str(loaded)!r})['application'])"
    environment = {"CEPHFIT_WSGI_SCRIPT": str(script), "PATH": "/usr/bin"}
    done = subprocess.run(
        ["/usr/bin/python3", "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.openstack
def test_threads_of_an_api_log_under_locks_of_threads(tmp_path: Path) -> None:
    """Eventlet's, which oslo.log puts there, let two threads wait for each other for ever."""
    script = tmp_path / "script"
    script.write_text(_SCRIPT)
    assert locks_of_logging(script, script).startswith("eventlet"), "else the script beside ours is not needed"
    assert locks_of_logging(component._WSGI_SCRIPT, script) == "threading"
