"""Chromium without a window, as it is installed on this machine."""

import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def load_address(address: str, profile: Path, *more: str) -> tuple[str, list[str]]:
    """(the document as the browser has it, what it said on its console)."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    options += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}"]
    found = subprocess.run(
        [str(CHROMIUM), *options, *more, "--enable-logging=stderr", "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    return found.stdout, [line for line in found.stderr.splitlines() if "CONSOLE" in line]
