"""Which target a person means: `lab`, `lab:NAME`, `lab:/folder`, `sim`, `local:/path`."""

from pathlib import Path

from cephfit.errors import InputError
from cephfit.protocols import Progress, Target

KINDS = ("lab", "sim", "local")


def open_target(text: str, *, for_change: bool, progress: Progress | None = None, ioengine: str = "") -> Target:
    """Open a target by its name.

    Args:
        text: ``lab`` (the lab called default), ``lab:NAME``, ``lab:/its/folder``, ``sim``,
            ``sim:noise=0.05,...``, ``local:/path/of/file``.
        for_change: whether the caller will apply configurations or reset; takes the target's lock.
        progress: hears what takes long.
        ioengine: fio's engine, if one will run: ``rbd`` opens images by itself, all others need block devices.

    Raises:
        InputError: no such kind of target, or no such lab.
        HostError: a lab, and no root.
        ClusterError: it does not answer, or another process changes it.
    """
    kind, _, which = text.partition(":")
    if kind == "lab":
        from cephfit.lab.cluster import Lab
        from cephfit.lab.machine import require_root
        from cephfit.lab.target import LabTarget

        lab = Lab.open(folder=Path(which)) if which.startswith("/") else Lab.open(which or "default")
        require_root("a lab")
        return LabTarget(lab, for_change=for_change, progress=progress, librbd=ioengine == "rbd")
    if kind == "sim":
        from cephfit.sweep.targets.simulated import simulated_target

        return simulated_target(text)
    if kind == "local":
        from cephfit.sweep.targets.local import local_target

        return local_target(text, for_change=for_change)
    raise InputError(
        f"there is no target {text!r}",
        remedy="targets are lab, lab:NAME, lab:/its/folder, sim, local:/path/of/file",
    )
