"""What uWSGI loads for an API of OpenStack: Debian's script, with locks that hold between uWSGI's threads.

oslo.log gives Python's logging the locks of eventlet wherever eventlet is imported, also where nothing runs in it.
These do not work between threads (eventlet's issue 432): two first requests at once could wait for each other for
ever, and everybody after them.

The system's Python runs this, without cephfit; ``CEPHFIT_WSGI_SCRIPT`` names Debian's script.
"""

import os
import runpy

from oslo_log import log

if not hasattr(log, "_fix_eventlet_logging"):
    raise AttributeError("this oslo.log brings eventlet's locks in another way, or no more: see to it here")
log._fix_eventlet_logging = lambda: None
application = runpy.run_path(os.environ["CEPHFIT_WSGI_SCRIPT"])["application"]
