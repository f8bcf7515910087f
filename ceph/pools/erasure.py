"""Erasure code profiles of the tool's own."""

import errno
from collections.abc import Mapping

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.crush.data_placement import Placement
from cephfit.ceph.options.option import same_value
from cephfit.ceph.pools.pool_keys import VALUE_TYPES
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin

_PROFILE = "erasure profile"


def ensure_profile(
    admin: CephAdmin, journal: Journal, name: str, code: Mapping[str, str], placement: Placement | None
) -> None:
    """Make a profile for a pool that is not there yet; in the journal before it exists.

    Args:
        admin: of the cluster.
        journal: of what was made.
        name: of the profile.
        code: ``k``, ``m``, ``plugin`` ...
        placement: written into the profile too, for people who read it; the pool's own rule is what places it.

    Raises:
        ClusterError: a profile of this name is there that is not ours.
        RefusedError: one of ours with another code is there, and some pool uses it.
    """
    if name in admin.command("osd erasure-code-profile ls"):
        if journal.get(_PROFILE, name) is None:
            raise ClusterError(
                "an erasure code profile of this name is there and not in the journal, so it is not this tool's "
                "to use",
                where=f"erasure code profile {name}",
                remedy="give the pool another name, or remove the profile if no pool uses it",
            )
        if not code_differences(code, profile_of(admin, name)):
            return
        admin.command("osd erasure-code-profile rm", name=name)  # begun for a code that is no longer wanted
    journal.note(_PROFILE, name, None)
    words = dict(code)
    if placement is not None:
        words["crush-failure-domain"] = placement.failure_domain
        if placement.devices.device_class:
            words["crush-device-class"] = placement.devices.device_class
    admin.command("osd erasure-code-profile set", name=name, profile=[f"{k}={v}" for k, v in words.items()])


def code_differences(wanted: Mapping[str, str], profile: Mapping[str, str]) -> dict[str, tuple[str | None, str]]:
    """Key to value now and then, of what a profile says otherwise than a declaration."""
    return {
        key: (profile.get(key), then)
        for key, then in wanted.items()
        if key not in profile or not same_value(VALUE_TYPES.get(key, "str"), then, profile[key])
    }


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
