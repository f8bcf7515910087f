"""The pages of the reference say what the program does: keys, defaults and required parts of its files."""

import json
import re
import runpy
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from cephfit.ceph.pools.pool_keys import IMAGE_KEYS, NESTED, PLAIN_KEYS
from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op, Pattern
from cephfit.core.values.configuration import QOS, TYPE
from cephfit.core.values.demand import Commits, Demand
from cephfit.core.values.profile import Profile
from cephfit.sweep.declaration import file_design, file_measurement, file_settings, sweep_file
from cephfit.sweep.factorial_design import DesignKind

DOCS = Path(__file__).resolve().parent.parent / "docs"
SWEEP = (DOCS / "sweep-file.md").read_text()
PROFILE = (DOCS / "profile-file.md").read_text()


def rows(page: str, section: str) -> Iterator[list[str]]:
    """The rows of the first table of a section, cell by cell; the first section has the page's title."""
    body = re.search(rf"^#+ {section}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    assert body is not None, section
    for line in body[1].splitlines():
        if line.startswith("| `") or line.startswith("| ["):
            yield [cell.strip() for cell in line.strip("|").split(" |")]


def keys(page: str, section: str) -> list[str]:
    return [row[0].strip("`") for row in rows(page, section)]


def example(page: str, language: str) -> Any:
    found = re.search(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1]) if language == "yaml" else json.loads(found[1])


def words(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


@pytest.mark.parametrize(
    ("section", "known"),
    [
        ("Top level", sweep_file._TOP),
        ("Configurations", file_settings._CONFIGURATION),
        ("Measurement", file_measurement._MEASUREMENT),
        ("Stopping", sweep_file._WORDS),
        ("Design", {*file_design._COMMON, *(word for own in file_design._WORDS.values() for word in own)}),
    ],
)
def test_the_sweep_file_has_these_keys(section: str, known: Any) -> None:
    found = keys(SWEEP, section)
    assert sorted(found) == sorted(known)


def test_pools_images_and_volumes_have_these_keys() -> None:
    plain, other, image, volume = rows(SWEEP, "Pool, image and volume")
    assert words(plain[1]) == set(PLAIN_KEYS)
    assert words(other[1]) == {file_settings.USE, *NESTED, "failure_domain"}
    assert words(image[1]) == set(IMAGE_KEYS)
    assert words(volume[1]) == {TYPE, QOS}


def test_loads_have_these_keys() -> None:
    (loads,) = (row for row in rows(SWEEP, "Measurement") if row[0] == "`loads`")
    assert words(loads[1]) == set(file_measurement._LOAD)


def test_each_kind_of_design_has_these_keys() -> None:
    for key, _, kinds in rows(SWEEP, "Design"):
        takes = {kind.value for kind, own in file_design._WORDS.items() if key.strip("`") in own}
        assert words(kinds) == takes or (kinds == "all" and key.strip("`") in file_design._COMMON)
    (kind,) = (row for row in rows(SWEEP, "Design") if row[0] == "`kind`")
    assert words(kind[1]) == {kind.value for kind in DesignKind}


def parse(document: Any) -> Any:
    return sweep_file.parse_sweep(yaml.safe_dump(document), file="page.yaml")


def test_the_page_marks_what_a_sweep_file_must_have() -> None:
    for section, place in (("Top level", lambda d: d), ("Measurement", lambda d: d["measurement"])):
        for row in rows(SWEEP, section):
            document = example(SWEEP, "yaml")
            key = row[0].strip("`")
            place(document).pop(key, None)
            if row[2] in ("yes", "required"):
                with pytest.raises(InputError, match=key):
                    parse(document)
            else:
                parse(document)


def test_defaults_of_a_measurement() -> None:
    document = example(SWEEP, "yaml")
    required = [row[0].strip("`") for row in rows(SWEEP, "Measurement") if row[2] == "required"]
    document["measurement"] = {key: document["measurement"][key] for key in required}
    implied = parse(document).measurement
    stated = {row[0].strip("`"): row[2] for row in rows(SWEEP, "Measurement") if "`" in row[2] or row[2].isdigit()}
    assert stated.keys() >= {"ramp_seconds", "iodepth", "engine", "ioengine", "direct", "cache", "max_attempts"}
    for key, value in stated.items():
        given = {**document, "measurement": {**document["measurement"], key: yaml.safe_load(value.strip("`"))}}
        assert parse(given).measurement == implied, key
    assert len(implied.cells) == 20


def test_defaults_of_stopping() -> None:
    document = example(SWEEP, "yaml")
    implied = parse({**document, "stopping": {"race": "cells"}}).stopping
    stated = {row[0].strip("`"): yaml.safe_load(row[2].strip("`")) for row in rows(SWEEP, "Stopping")}
    given = {key: value for key, value in stated.items() if not str(value).startswith("no ")}
    assert parse({**document, "stopping": {"race": "cells", **given}}).stopping == implied
    assert given.keys() == {"decide", "margin_percent", "minimum", "confidence"}


def whole_profile() -> dict[str, Any]:
    """A profile file with every part."""
    document = {**example(PROFILE, "json"), "random_by_bin": {"read": {"4K": 1}, "write": {}}, "idle_seconds": 1}
    profile = Profile.from_json({**document, "alignment": {"read": {"4K": {"own": 1}}, "write": {}}})
    demand = Demand(Pattern.RANDREAD, 4096, True, 1, True, 9, 1)
    parts = {name: getattr(profile, name) for name in Profile.__dataclass_fields__}
    return Profile(**{**parts, "demands": (demand,), "commits": Commits(1, 0.1, 0, 1)}).to_json()


def test_the_profile_file_has_these_keys() -> None:
    document = whole_profile()
    assert keys(PROFILE, "The profile file") == list(document)
    assert keys(PROFILE, "Demands") == document["demands"]["columns"]
    assert keys(PROFILE, "Commits") == [f.name for f in fields(Commits)]


def test_the_page_marks_what_a_profile_must_have() -> None:
    for key, _, mark in rows(PROFILE, "The profile file"):
        document = {name: value for name, value in whole_profile().items() if name != key.strip("`")}
        if mark == "yes":
            with pytest.raises(InputError, match=key.strip("`")):
                Profile.from_json(document)
        else:
            Profile.from_json(document)


def test_the_example_of_a_profile_counts_its_accesses() -> None:
    profile = Profile.from_json(example(PROFILE, "json"))
    assert profile.n_accesses == 100_000
    assert profile.accesses[Op.READ]["4K"] == 60_000


def test_generated_pages_are_up_to_date() -> None:
    """Otherwise run `make docs-reference` and commit docs/store.md and docs/python-reference.md."""
    generator = runpy.run_path(str(DOCS / "make_reference.py"))
    assert generator["store_document"]() == (DOCS / "store.md").read_text()
    assert generator["api_document"]() == (DOCS / "python-reference.md").read_text()


def test_every_public_name_and_method_has_a_text() -> None:
    sections = re.split(r"^#{3,4} ", (DOCS / "python-reference.md").read_text(), flags=re.MULTILINE)[1:]
    without = [
        s.split("\n")[0]
        for s in sections
        if not re.sub(r"^```.*?^```", "", s.partition("\n")[2], flags=re.M | re.S).strip()
    ]
    assert without == []
    assert "None" not in {row[-1] for row in rows((DOCS / "store.md").read_text(), "cephfit_samples")}
