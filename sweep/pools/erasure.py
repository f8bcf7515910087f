"""Erasure code profiles of the tool's own."""

import errno
from collections.abc import Mapping

from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.crush.placement import Placement
from cephfit.sweep.journal import Journal

_PROFILE = "erasure profile"


def ensure_profile(
    admin: CephAdmin, journal: Journal, name: str, code: Mapping[str, str], placement: Placement | None
) -> None:
    """Make a profile; in the journal before it exists.

    Args:
        admin: of the cluster.
        journal: of what was made.
        name: of the profile.
        code: ``k``, ``m``, ``plugin`` ...
        placement: written into the profile too, for people who read it; the pool's own rule is what places it.
    """
    if name in admin.command("osd erasure-code-profile ls"):
        return
    journal.note(_PROFILE, name, None)
    words = dict(code)
    if placement is not None:
        words["crush-failure-domain"] = placement.failure_domain
        if placement.devices.device_class:
            words["crush-device-class"] = placement.devices.device_class
    admin.command("osd erasure-code-profile set", name=name, profile=[f"{k}={v}" for k, v in words.items()])


def profile_of(admin: CephAdmin, name: str) -> Mapping[str, str]:
    """What a profile says; empty if there is none of this name."""
    try:
        said: dict[str, str] = admin.command("osd erasure-code-profile get", name=name)
    except RefusedError as error:
        if error.code == errno.ENOENT:
            return {}
        raise
    return said


def remove_profile(admin: CephAdmin, journal: Journal, name: str) -> None:
    """Remove a profile that is in the journal; its pool must be gone."""
    if journal.get(_PROFILE, name) is None:
        return
    admin.command("osd erasure-code-profile rm", name=name)  # no error where there is none
    journal.forget(_PROFILE, name)
