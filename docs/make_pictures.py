"""Write docs/images/*.png from real runs: new ones on a lab of this machine, or those of given stores.

Run with: .venv/bin/python docs/make_pictures.py [--report STORE] [--scaling STORE]
It needs Chromium and matplotlib (`make test-packages`, `pip install -e '.[plot]'`), and for new runs root and an
hour. The tables of docs/scaling.md are of one run: write them again from the run of a new picture.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
LAB = "pictures"
REPORT_SIZE = (1160, 2420)
"""Width and height of the picture of a report in pixels: its first screens."""
SCALING = "scaling-4k-rand"
"""Beginning of the names of the pictures that docs/scaling.md shows: random reads and writes of 4K."""
ALONG = "-clients-"


def cephfit(*arguments: str) -> None:
    """Run a command as a user would."""
    subprocess.run([sys.executable, "-m", "cephfit.cli.main", *arguments], check=True)


def draw_report(store: Path, picture: Path) -> None:
    """Write what Chromium shows of the report of a store's newest run."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium on this machine; make test-packages installs it")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        cephfit("report", "--store", str(store), "-o", str(page))
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/user",
        ]
        size = f"--window-size={REPORT_SIZE[0]},{REPORT_SIZE[1]}"
        argv = [chromium, *options, size, f"--screenshot={picture.resolve()}", page.as_uri()]
        subprocess.run(argv, check=True, capture_output=True, timeout=120)


def draw_scaling(store: Path, picture: Path) -> None:
    """Draw rate and latency over the number of clients, from a store's newest run."""
    plot = ["plot", "--store", str(store)]
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "cephfit.cli.main", *plot, "-o", f"{folder}/all.png", "--json"]
        done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    names = [n for n in json.loads(done.stdout)["pictures"] if n.startswith(SCALING) and ALONG in n]
    if not names:
        raise SystemExit(f"{store}: its newest run did not measure 4K over the number of clients")
    cephfit(*plot, "-o", str(picture), *(word for name in names for word in ("--only", name)))


def demo_store(folder: Path) -> Path:
    """Run the demo, and return its store."""
    cephfit("demo", "--folder", str(folder / "demo"))
    return folder / "demo" / "results.sqlite"


def scaling_store(folder: Path) -> Path:
    """Measure the sweep `scaling` on a new lab, and return its store."""
    store = folder / "scaling.sqlite"
    try:
        cephfit("lab", "up", "--name", LAB)
        cephfit("sweep", "run", "scaling", "--target", f"lab:{LAB}", "--store", str(store))
    finally:
        cephfit("lab", "down", "--name", LAB)
    return store


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/images/*.png from real runs.")
    parser.add_argument(
        "--report", type=Path, metavar="STORE", help="of a verified run; without it, `cephfit demo`"
    )
    parser.add_argument(
        "--scaling", type=Path, metavar="STORE", help="of the sweep `scaling`; without it, on a lab"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        draw_report(given.report or demo_store(Path(folder)), IMAGES / "report.png")
        draw_scaling(given.scaling or scaling_store(Path(folder)), IMAGES / "scaling.png")


if __name__ == "__main__":
    main()
