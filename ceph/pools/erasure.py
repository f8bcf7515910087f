"""Erasure code profiles that cephfit creates."""

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
    """Create a profile for a pool that does not exist yet; it is in the journal before it exists.

    Args:
        admin: of the cluster.
        journal: of created resources.
        name: of the profile.
        code: ``k``, ``m``, ``plugin`` ...
        placement: recorded in the profile for information; the pool's rule determines the placement.

    Raises:
        ClusterError: a profile of this name exists that cephfit did not create.
        RefusedError: a profile of ours with another code exists, and a pool uses it.
    """
    if name in admin.command("osd erasure-code-profile ls"):
        if journal.get(_PROFILE, name) is None:
            raise ClusterError(
                "an erasure code profile of this name exists but is not in the journal, so cephfit did not create "
                "it",
                where=f"erasure code profile {name}",
                remedy="give the pool another name, or remove the profile if no pool uses it",
            )
        if not code_differences(code, profile_of(admin, name)):
            return
        admin.command("osd erasure-code-profile rm", name=name)  # created for a code that is no longer required
    journal.note(_PROFILE, name, None)
    words = dict(code)
    if placement is not None:
        words["crush-failure-domain"] = placement.failure_domain
        if placement.devices.device_class:
            words["crush-device-class"] = placement.devices.device_class
    admin.command("osd erasure-code-profile set", name=name, profile=[f"{k}={v}" for k, v in words.items()])


def is_coded(journal: Journal, pool: str) -> bool:
    """Return whether cephfit created a profile for this pool."""
    return journal.get(_PROFILE, pool) is not None


def code_differences(required: Mapping[str, str], profile: Mapping[str, str]) -> dict[str, tuple[str | None, str]]:
    """Return key to (present value, declared value), where a profile differs from a declaration."""
    return {
        key: (profile.get(key), then)
        for key, then in required.items()
        if key not in profile or not same_value(VALUE_TYPES.get(key, "str"), then, profile[key])
    }


def profile_of(admin: CephAdmin, name: str) -> Mapping[str, str]:
    """Read a profile; empty if there is none of this name."""
    try:
        reported: dict[str, str] = admin.command("osd erasure-code-profile get", name=name)
    except RefusedError as error:
        if error.code == errno.ENOENT:
            return {}
        raise
    return reported


def remove_profile(admin: CephAdmin, journal: Journal, name: str) -> None:
    """Remove a profile that is in the journal; its pool must be deleted first."""
    if journal.get(_PROFILE, name) is None:
        return
    admin.command("osd erasure-code-profile rm", name=name)  # no error where there is none
    journal.forget(_PROFILE, name)
