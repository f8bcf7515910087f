"""What names of files and folders say, and the rules of a mapping file."""

from pathlib import Path, PurePosixPath

import pytest

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Pattern
from cephfit.measure.imported_outputs.name_mapping import PathNames, duplicate_of, names_of_path, read_mapping


def names(path: str) -> PathNames:
    return names_of_path(PurePosixPath(path))


@pytest.mark.parametrize(
    ("path", "configuration", "client", "repeat"),
    [
        ("/data/ssd/randread-32-8.json", "ssd", "", None),
        ("/data/nvme0n1/4k/run-3/randread-32-8.json", "nvme0n1", "", None),
        ("/data/nvme0n1/randrw75/64k/rw-1-1.json", "nvme0n1", "", None),
        ("/cbt/three-copies/results/00000002/id-1a2b3c4d/randread/output.1.host7", "three-copies", "host7.1", 2),
        ("/cbt/ec/results/00000000/id-1a2b3c4d/op_size-00004096/iodepth-032/output.0", "ec", "client.0", 0),
        ("/4k.json", "4k", "", None),
    ],
)
def test_a_folder_that_names_no_kind_of_access_is_the_configuration(
    path: str, configuration: str, client: str, repeat: int | None
) -> None:
    found = names(path)
    assert (found.configuration, found.client, found.repeat) == (configuration, client, repeat)


@pytest.mark.parametrize(
    ("path", "pattern", "nbytes", "iodepth"),
    [
        ("/x/randread-4k.txt", Pattern.RANDREAD, 4096, 0),
        (
            "/c/results/00000000/id-1a2b3c4d/op_size-04194304/concurrent_ops-016/seq/output.0.h",
            "read",
            4 << 20,
            16,
        ),
        ("/x/rand/rados.txt", Pattern.RANDREAD, 0, 0),
        ("/x/read-and-write.txt", None, 0, 0),
        ("/x/spreadsheet.txt", None, 0, 0),
    ],
)
def test_names_hint_at_the_kind_of_access(path: str, pattern: str | None, nbytes: int, iodepth: int) -> None:
    hints = names(path).hints
    assert (hints.pattern, hints.nbytes, hints.iodepth) == (pattern, nbytes, iodepth)


def test_cbt_writes_the_same_run_twice() -> None:
    assert duplicate_of(PurePosixPath("/a/json_output.0.h"), ["output.0.h", "json_output.0.h"]) == "output.0.h"
    assert duplicate_of(PurePosixPath("/a/json_output.0.h"), ["json_output.0.h"]) == ""
    assert duplicate_of(PurePosixPath("/a/output.0.h"), ["output.0.h", "json_output.0.h"]) == ""


def test_groups_and_keys_of_the_first_rule_that_matches(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(
        "files:\n"
        "  - {match: 'warmup', skip: true}\n"
        "  - match: '(?P<configuration>hdd|ssd)/h(?P<client>\\d+)-r(?P<repeat>\\d+)'\n"
        "    pattern: randread\n"
        "  - {match: 'nowhere', client: x}\n"
        "configurations: {hdd: A}\n"
    )
    mapping = read_mapping(file)
    _, values = mapping.of_file("data/ssd/h3-r1.txt")
    assert values == {"configuration": "ssd", "client": "3", "repeat": "1", "pattern": "randread"}
    rule, _ = mapping.of_file("ssd/warmup/h3-r1.txt")
    assert rule is not None
    assert rule.skip
    assert mapping.configurations == {"hdd": "A"}
    assert mapping.unused() == [f"{file}:5"]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("files:\n  - match: '(unclosed'\n", 2, "not a regular expression"),
        ("files:\n  - match: '(?P<pool>x)'\n", 2, "group 'pool'"),
        ("files:\n  - {match: x}\n  - {match: x, repeat: often}\n", 3, "repeat cannot be 'often'"),
        ("files:\n  - {match: x, pattern: trim}\n", 2, "pattern cannot be 'trim'"),
        ("files:\n  - {match: x, size: 0}\n", 2, "give a multiple of 512 bytes"),
        ("files:\n  - {match: x, size: 7}\n", 2, "give a multiple of 512 bytes"),
        ("files:\n  - {match: x, align: 3K}\n", 2, "give a power of two from 512 on"),
        (f"files:\n  - {{match: x, iodepth: {'9' * 30}}}\n", 2, "give a whole number from 1 to 999999"),
        ("files:\n  - {match: x, repeat: -1}\n", 2, "give a whole number from 0 to 999999"),
        ("jobs:\n  - {match: x, sync: sometimes}\n", 2, "sync cannot be 'sometimes'"),
        ("files:\n  - {match: '(?P<client>x)', client: y}\n", 2, "client is stated by a group"),
        ("files:\n  - {client: y}\n", 2, "lacks 'match'"),
        ("file:\n  - {match: y}\n", 1, "unknown word 'file'"),
        ("files: {match: y}\n", 1, "must be a list"),
    ],
)
def test_a_wrong_mapping_names_the_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=what) as refused:
        read_mapping(file)
    assert refused.value.where == f"{file}:{line}"


@pytest.mark.parametrize(
    ("content", "what"),
    [(None, "No such file"), (b"\xff\xfe", "not text in UTF-8"), (b" \n", "the mapping is empty")],
)
def test_a_file_that_is_no_mapping_is_refused_with_a_remedy(
    tmp_path: Path, content: bytes | None, what: str
) -> None:
    file = tmp_path / "m.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=what) as refused:
        read_mapping(file)
    assert refused.value.where == str(file)
    assert "rules (`files:`)" in refused.value.remedy
