"""Clients are asked through their sockets what they run with, so their paths must be ones that Linux takes."""

import pwd
import re
import uuid
from importlib.resources import files
from pathlib import Path
from typing import Any

from cephfit.sweep.client_conf import ClientAccess
from cephfit.sweep.targets.surroundings import Surroundings
from cephfit.sweep.targets.volume_clients import VolumeClients

LONGEST_PATH = 107  # sizeof(sockaddr_un.sun_path) less the zero, unix(7)
LONGEST = {"$pid": str(2**22), "$cctid": str(2**47 - 1)}  # PID_MAX_LIMIT; an address in user space


def test_roots_folder_for_a_cluster_has_room_for_a_clients_socket(tmp_path: Path) -> None:
    nothing: Any = None
    access = ClientAccess(client_id="cephfit", keyring="")
    VolumeClients("ceph", access=access, folder=tmp_path, volumes=nothing, surroundings=Surroundings(nothing))
    (folder,) = (p for p in tmp_path.iterdir() if p.is_dir())
    template = (files("cephfit.templates") / "client.conf.j2").read_text()
    (name,) = re.findall(r"^admin_socket = \{\{ socket_folder \}\}/(.*)$", template, re.MULTILINE)
    for word, longest in LONGEST.items():
        name = name.replace(word, longest)
    assert "$" not in name, "a word whose length this test does not know"
    home = pwd.getpwuid(0).pw_dir
    path = f"{home}/.local/state/cephfit/clusters/{uuid.uuid4()}/{folder.name}/{name}"
    assert len(path) <= LONGEST_PATH
