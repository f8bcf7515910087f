"""What must hold for every implementation of ``Host``: one suite, run by test_hosts.py against each."""

import json
import threading
from pathlib import Path

import pytest

from cephfit.ceph.host import Host, checked
from cephfit.core.errors import HostError
from cephfit.lab.daemons import processes


class HostContract:
    """Subclass with a fixture ``host``, on which ``tmp_path`` is the same folder as here."""

    def test_a_program_gets_its_words_as_they_are(self, host: Host) -> None:
        words = ["two words", "$HOME", "`id`", "a'b\"c", "*", "", "ü", "-n"]
        done = host.run(["python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words])
        assert done.code == 0, done
        assert json.loads(done.stdout) == words

    def test_what_it_reads_and_prints_is_kept_apart(self, host: Host) -> None:
        done = host.run(["sh", "-c", "cat; echo wrong >&2; exit 3"], stdin="line 1\nline 2")
        assert (done.code, done.stdout, done.stderr) == (3, "line 1\nline 2", "wrong\n")

    def test_a_failure_is_told_in_the_programs_words(self, host: Host) -> None:
        with pytest.raises(HostError, match=r"failed with code 3: it hurts") as caught:
            checked(host, ["sh", "-c", "echo it hurts >&2; exit 3"])
        assert caught.value.where.startswith(host.name)

    def test_a_missing_program_is_told_from_a_failing_one(self, host: Host) -> None:
        with pytest.raises(HostError, match="there is no such program"):
            host.run(["no-such-program-at-all"])
        assert host.run(["sh", "-c", "exit 127"]).code == 127

    def test_programs_of_the_sbin_folders_are_found(self, host: Host) -> None:
        assert checked(host, ["sysctl", "-n", "kernel.ostype"]) == "Linux\n"

    def test_a_program_that_takes_too_long_is_ended(self, host: Host, tmp_path: Path) -> None:
        """The program writes its process id, so that its end is seen without a clock."""
        pid = tmp_path / "pid"
        host.run(["true"])  # connecting takes seconds on a busy machine, and is not what is limited here
        with pytest.raises(HostError, match=r"no answer within 2 s"):
            host.run(["sh", "-c", f"echo $$ > {pid}; exec sleep 300"], seconds=2)
        assert processes.wait_gone([int(pid.read_text())], 10) == [], "it ends long before its 300 s"
        assert host.run(["true"]).code == 0, "and the host is usable after it"

    def test_files_are_read_written_and_found(self, host: Host, tmp_path: Path) -> None:
        file = tmp_path / "a 'file' of $ours"
        assert not host.exists(file)
        host.write(file, "one\n")
        host.write(file, "two\n")
        assert host.exists(file)
        assert host.exists(tmp_path)
        assert host.read(file) == file.read_text() == "two\n"

    def test_what_cannot_be_read_or_written_is_said_with_its_place(self, host: Host, tmp_path: Path) -> None:
        with pytest.raises(HostError, match="cannot be read: No such file or directory") as caught:
            host.read(tmp_path / "absent")
        assert str(tmp_path / "absent") in caught.value.where
        with pytest.raises(HostError, match="'1' cannot be written: No such file or directory"):
            host.write(tmp_path / "no" / "folder", "1")

    def test_many_files_are_read_at_once(self, host: Host, tmp_path: Path) -> None:
        texts = {tmp_path / "a:b": "1\n", tmp_path / "two lines": "x\ny: z\n", tmp_path / "ü": "none [bfq]\n"}
        for path, text in texts.items():
            path.write_text(text)
        (tmp_path / "empty").touch()
        absent = [tmp_path / "absent", tmp_path / "empty", tmp_path]
        assert host.read_all([*texts, *absent]) == texts
        assert host.read_all(absent) == host.read_all([]) == {}

    @pytest.mark.root
    def test_a_value_that_the_kernel_refuses_is_an_error(self, host: Host) -> None:
        with pytest.raises(HostError, match="'many' cannot be written: Invalid argument"):
            host.write(Path("/proc/sys/vm/swappiness"), "many")

    def test_several_threads_may_use_it(self, host: Host) -> None:
        answers: list[str] = []
        threads = [
            threading.Thread(target=lambda n=n: answers.append(checked(host, ["echo", str(n)]))) for n in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [f"{n}\n" for n in range(6)]

    def test_it_can_be_used_again_after_it_was_closed(self, host: Host) -> None:
        host.close()
        host.close()
        assert checked(host, ["echo", "here"]) == "here\n"
