"""Ownership of cloud resources: everything that cephfit creates carries the id of its run.

Stacks have it as a tag, servers and volumes as metadata, volume types as an extra spec. A stack's other resources
(ports, the security group, the server group) and QoS specs have it in their names, and the security group also in
its description: not all clouds store more for these.
"""

import hashlib
import re

RUN_KEY = "cephfit_run"
"""Metadata key of servers and volumes."""
TAG_PREFIX = "cephfit-run="
"""Tag of stacks, followed by the run's id."""
NAME_PREFIX = "cephfit"

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def tag_of(run_id: str) -> str:
    """Return the tag of a run's stacks."""
    return TAG_PREFIX + run_id


def stack_name(run_id: str, kind: str) -> str:
    """Return the name of a run's stack. Heat allows a letter, then letters, digits, ``_``, ``-``, ``.``."""
    return f"{NAME_PREFIX}-{run_id}-{kind}"


def own_name(run_id: str, kind: str) -> str:
    """Return the name of a resource without other signs of its run; a hash separates ids that begin alike."""
    return f"{stack_name(run_id, kind)}-{_sign(run_id)}"


def has_own_name(name: str, run_id: str) -> bool:
    """Return whether ``own_name`` gives this name for a run."""
    return name.startswith(stack_name(run_id, "")) and name.endswith(f"-{_sign(run_id)}")


def _sign(run_id: str) -> str:
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]


def is_run_id(text: str) -> bool:
    """Return whether a text can be a run's id."""
    return bool(_RUN_ID.fullmatch(text))
