"""What a pool really became: its values, its code, its tier, and on which OSDs its PGs lie."""

import errno
from collections.abc import Mapping, Sequence
from typing import Any

from cephfit.configuration import Setting
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.admin.older_releases import listed_pgs
from cephfit.sweep.crush.programs import NOWHERE
from cephfit.sweep.options.option_value import same_value
from cephfit.sweep.pools.cache_tier import tier_faults
from cephfit.sweep.pools.erasure import profile_of
from cephfit.sweep.pools.pool_keys import VALUE_TYPES
from cephfit.sweep.pools.pool_plan import PoolPlan, Role

Allowed = Mapping[str, Sequence[Mapping[int, int]]]
"""Rule to the OSDs that it may use; the primaries' first where they lie apart."""


def pool_value(admin: CephAdmin, pool: str, key: str) -> Any:
    """A pool's value; None where it was never set, and where this release does not tell it."""
    try:
        said = admin.command("osd pool get", pool=pool, var=key)
    except RefusedError as error:
        # The answers for a value that was never set on an existing pool, and for one that cannot be asked: before
        # Nautilus `allow_ec_overwrites`.
        if error.code in (errno.ENOENT, errno.EINVAL):
            return None
        raise
    return said.get(key) if isinstance(said, dict) else None


def read_back_pools(
    admin: CephAdmin, plans: Sequence[PoolPlan], settings: Sequence[Setting], allowed: Allowed
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Setting as text to pool to value, and one sentence per setting that did not take effect.

    Args:
        admin: of the cluster.
        plans: what the settings come to.
        settings: of the pool partition, scope ``pool``.
        allowed: for each plan that has a placement.
    """
    values: dict[str, dict[str, Any]] = {}
    faults: list[str] = []
    text_of = {s.key: str(s) for s in settings}
    base = ""
    for plan in plans:
        base = base if plan.role is Role.CACHE else plan.name
        for key, name in plan.said.items():
            wanted, got = plan.values[name], pool_value(admin, plan.name, name)
            values.setdefault(text_of[key], {})[plan.name] = got
            if got is None or not same_value(VALUE_TYPES.get(name, "str"), wanted, got):
                faults.append(f"pool {plan.name} has {name} = {got}, not {wanted}")
        if plan.erasure:
            faults += _read_code(admin, plan, text_of, values)
        if plan.role is Role.CACHE:
            faults += tier_faults(admin, base=base, cache=plan.name, mode=plan.mode)
            if "cache.mode" in text_of:
                values[text_of["cache.mode"]] = {plan.name: dumped_pool(admin, plan.name)["cache_mode"]}
        if plan.placement is not None:
            faults += _read_place(admin, plan, text_of, values, allowed[plan.rule])
    return values, faults


def _read_code(
    admin: CephAdmin, plan: PoolPlan, text_of: Mapping[str, str], values: dict[str, dict[str, Any]]
) -> list[str]:
    dumped = dumped_pool(admin, plan.name)
    profile = profile_of(admin, dumped["erasure_code_profile"])
    faults = []
    for key, wanted in plan.erasure.items():
        got = profile.get(key)
        values[text_of[f"erasure.{key}"]] = {plan.name: got}
        if got is None or not same_value(VALUE_TYPES.get(key, "str"), wanted, got):
            faults.append(f"the erasure code of pool {plan.name} has {key} = {got}, not {wanted}")
    if int(dumped["size"]) != plan.size:
        faults.append(f"pool {plan.name} has {dumped['size']} chunks, not {plan.size}")
    if "ec_overwrites" not in str(dumped["flags_names"]).split(","):
        faults.append(f"pool {plan.name} does not allow overwrites, so images cannot lie in it")
    return faults


def _read_place(
    admin: CephAdmin,
    plan: PoolPlan,
    text_of: Mapping[str, str],
    values: dict[str, dict[str, Any]],
    allowed: Sequence[Mapping[int, int]],
) -> list[str]:
    """Where the PGs lie, as the manager says, not as the map would have it."""
    pgs = listed_pgs(admin.command("pg ls-by-pool", poolstr=plan.name)) or ()
    firsts = {pg["acting_primary"] for pg in pgs}
    others = {osd for pg in pgs for osd in pg["acting"] if osd not in (pg["acting_primary"], NOWHERE)}
    prefix = {Role.BASE: ("", "metadata."), Role.DATA: ("",), Role.CACHE: ("cache.",)}[plan.role]
    for key, text in text_of.items():
        for start in prefix:
            rest = key.removeprefix(start)
            if key.startswith(start) and rest.startswith(("devices.", "primary.", "failure_domain")):
                found = firsts if rest.startswith("primary.") else others if len(allowed) > 1 else firsts | others
                values.setdefault(text, {})[plan.name] = " ".join(f"osd.{osd}" for osd in sorted(found))
    groups = [(firsts, allowed[0], "primaries"), (others, allowed[-1], "copies")]
    return [
        f"{what} of pool {plan.name} lie on {', '.join(f'osd.{osd}' for osd in sorted(wrong))}, not on "
        f"{plan.placement}"
        for found, right, what in groups
        if (wrong := found - set(right))
    ]


def dumped_pool(admin: CephAdmin, name: str) -> dict[str, Any]:
    """A pool that is there, as ``osd dump`` has it."""
    pool: dict[str, Any] = next(p for p in admin.command("osd dump")["pools"] if p["pool_name"] == name)
    return pool
