"""A Ceph admin socket whose process is busy."""

import json
import socket
import struct
import threading
import time
from pathlib import Path

from cephfit.ceph.delivery.client_conf import ask


def test_a_process_that_others_wait_for_is_waited_for(tmp_path: Path) -> None:
    """A connection to a Unix socket whose queue is full is refused at once (EAGAIN), whatever the timeout."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "a.asok"))
        server.listen(0)
        other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        other.connect(str(tmp_path / "a.asok"))

        def serve() -> None:
            time.sleep(0.3)
            server.accept()[0].close()
            link, _ = server.accept()
            with link:
                link.recv(1000)
                answer = json.dumps({"version": "16.2"}).encode()
                link.sendall(struct.pack(">I", len(answer)) + answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert ask(tmp_path / "a.asok", "version", seconds=10) == {"version": "16.2"}
        thread.join()
        other.close()
