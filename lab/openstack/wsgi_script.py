"""The script that uWSGI loads for an API of OpenStack: Debian's script, with logging locks for threads.

oslo.log replaces the locks of Python's logging by those of eventlet wherever eventlet is imported, even if it is
not used. These do not work between threads (eventlet's issue 432): two concurrent first requests could deadlock
and block all later ones.

The system's Python runs this, without cephfit; ``CEPHFIT_WSGI_SCRIPT`` names Debian's script.
"""

import os
import runpy

from oslo_log import log

if not hasattr(log, "_fix_eventlet_logging"):
    raise AttributeError("this oslo.log installs eventlet's locks in another way, or no longer: adapt this script")
log._fix_eventlet_logging = lambda: None
application = runpy.run_path(os.environ["CEPHFIT_WSGI_SCRIPT"])["application"]
