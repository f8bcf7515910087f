"""What cloud-init makes of the guests' user data: Debian's own cloud-init, unpacked and not installed.

A machine's cloud-init would run at its next boot, so the package is only fetched from the distribution's mirror.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from cephfit.cloud.guests import guest_jobs, guests
from cephfit.cloud.guests.initramfs import run
from cephfit.core.errors import HostError

pytestmark = pytest.mark.slow

# As cloud-init does it at a guest's first boot, up to the point where it would run the scripts.
READING = """
import json, sys
from cloudinit import handlers, helpers, user_data
from cloudinit.handlers.shell_script import ShellScriptPartHandler

paths = helpers.Paths({"cloud_dir": sys.argv[1], "run_dir": sys.argv[1]})
message = user_data.UserDataProcessor(paths).process(open(sys.argv[2], "rb").read())
kinds = [part.get_content_type() for part in message.walk() if not part.is_multipart()]
scripts = ShellScriptPartHandler(paths)
for part in message.walk():
    if not part.is_multipart():
        text = part.get_payload(decode=True).decode()
        scripts.handle_part(None, part.get_content_type(), part.get_filename() or "part-001", text, None)
print(json.dumps({"kinds": kinds, "folder": scripts.script_dir}))
"""


@pytest.fixture(scope="session")
def cloud_init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the Python package ``cloudinit``."""
    folder = tmp_path_factory.mktemp("cloud-init")
    try:
        run(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", "cloud-init"], cwd=folder)
        run(["dpkg-deb", "-x", str(next(folder.glob("*.deb"))), str(folder / "tree")])
    except (HostError, StopIteration) as error:
        pytest.skip(f"needs Debian's mirror: {error}")
    return folder / "tree" / "usr" / "lib" / "python3" / "dist-packages"


@pytest.mark.parametrize("which", ["server", "job"])
def test_cloud_init_runs_the_user_data_as_the_script_that_it_is(
    cloud_init: Path, tmp_path: Path, which: str
) -> None:
    text = (
        guests.user_data(port=8765) if which == "server" else guest_jobs.user_data("v", "true", key="k", start=1)
    )
    (tmp_path / "user_data").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", READING, str(tmp_path / "cloud"), str(tmp_path / "user_data")],
        env={"PYTHONPATH": str(cloud_init), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout.splitlines()[-1])
    assert read["kinds"] == ["text/x-shellscript"]
    (script,) = Path(read["folder"]).iterdir()
    assert script.read_text() == text
    assert script.stat().st_mode & 0o100, "cloud-init runs what is executable, as root"
    subprocess.run(["/bin/sh", "-n", str(script)], check=True)
