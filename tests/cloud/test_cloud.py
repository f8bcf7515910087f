"""The pure parts of the target openstack; the rest is tested on a real OpenStack (test_openstack_target.py)."""

import base64
import gzip
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("openstack", reason="needs the extra openstack")

from cephfit.ceph.options.option_catalogue import unsupported
from cephfit.cloud import owned_resources
from cephfit.cloud.cloud_choice import CloudChoice, parse_choice, require_whole
from cephfit.cloud.guests import guests
from cephfit.cloud.guests.guest_jobs import SIGNAL, Handle, from_signal, readings_of, unpacked, user_data
from cephfit.cloud.guests.guests import moved_of
from cephfit.cloud.ownership import is_run_id, stack_name
from cephfit.cloud.stacks import Node, innermost, template_path
from cephfit.cloud.volumes.cinder_volumes import size_gib
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.units import GIB
from cephfit.core.values.cells import Op
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.sweep.declaration.sweep_file import parse_sweep

SWEEP = """
schema_version: 1
name: types
configurations:
  ssd:
    volume: {type: fast}
measurement: {clients: 1, volume_size: 64M, repeats: 1, run_seconds: 1, seed: 1}
"""


def test_a_target_names_the_cloud_and_what_its_guests_are_made_of() -> None:
    choice = parse_choice("openstack:work,flavor=m1.small,volume_type=hdd,network=lab,port=9000,overcommit=yes")
    assert choice == CloudChoice("work", "cephfit-guest", "m1.small", "hdd", "lab", port=9000, overcommit=True)
    require_whole(choice)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("openstack:work,flavour=m1", "unknown word 'flavour'.*did you mean 'flavor'"),
        ("openstack:work,flavor", "not NAME=VALUE"),
        ("openstack:work,flavor=a,flavor=b", "given twice"),
        ("openstack:work,port=0", "not a port"),
        ("openstack:work,overcommit=perhaps", "yes or no"),
    ],
)
def test_a_wrong_word_in_a_target_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_choice(text)
    assert re.search(words, str(refused.value), re.DOTALL)


def test_who_only_restores_need_not_say_what_guests_are_made_of() -> None:
    choice = parse_choice("openstack:work")
    with pytest.raises(InputError, match="the flavor of the benchmark clients is missing"):
        require_whole(choice)


def test_a_sweep_chooses_volume_types_in_the_pool_partition() -> None:
    sweep = parse_sweep(SWEEP, file="types.yaml")
    (setting,) = sweep.configuration("ssd").settings
    assert setting == Setting(Partition.POOL, "volume", "type", "fast")


def test_a_volume_has_no_other_setting() -> None:
    with pytest.raises(InputError, match=r"types.yaml:6.*no 'tipe'"):
        parse_sweep(SWEEP.replace("type: fast", "tipe: fast"), file="types.yaml")


def test_a_ceph_cluster_skips_configurations_of_volume_types() -> None:
    fast = Configuration("ssd", (Setting(Partition.POOL, "volume", "type", "fast"),))
    assert "OpenStack" in unsupported([fast], None)["ssd"][0]


@given(st.integers(1, 100 * GIB))
def test_a_cinder_volume_holds_what_is_asked_for_and_less_than_a_gib_more(nbytes: int) -> None:
    assert nbytes <= size_gib(nbytes) * GIB < nbytes + GIB


def test_the_hypervisor_counts_by_device() -> None:
    # Nova 26.2 with libvirt, API version 2.47, a guest with a root disk and a volume.
    diagnostics = {"vda_read": 512, "vda_write": 0, "vdb_read": 8192, "vdb_write": 4096, "memory": 393216}
    moved = moved_of(diagnostics, "vdb")
    assert (moved.of(Op.READ), moved.of(Op.WRITE)) == (8192, 4096)
    with pytest.raises(ClusterError, match="disk vdc"):
        moved_of(diagnostics, "vdc")


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (
            "ResourceInError: resources.clients.resources[0].server: Went to status ERROR due to "
            '"Message: No valid host was found. , Code: 500"',
            'Went to status ERROR due to "Message: No valid host was found. , Code: 500"',
        ),
        (
            "BadRequest: resources.server: The requested availability zone is not available (HTTP 400) "
            "(Request-ID: req-1c5efdcc-e3c0-4a1d-86c8-033c1aff69e9)",
            "The requested availability zone is not available",
        ),
    ],
)
def test_the_reason_of_a_failed_resource_is_what_its_service_said(chain: str, words: str) -> None:
    # As Heat of the release Zed says them.
    assert innermost(chain) == words


def test_names_of_one_run_are_never_those_of_another() -> None:
    # The run "a-1" has a security group "cephfit-a-1"; the run "a" has a port of that name, but no such group.
    kinds = {kind.name: kind for kind in owned_resources.KINDS}
    assert kinds["port"].names("a").fullmatch("cephfit-a-1")
    assert not kinds["port"].names("a").fullmatch("cephfit-a-1-0")
    assert not kinds["security group"].names("a").fullmatch("cephfit-a-1")
    assert not kinds["port"].names("a.b").fullmatch("cephfit-axb-1")


def test_a_run_is_named_so_that_heat_takes_the_stacks_name() -> None:
    run_id = "quick-20261121T170212-19b3"
    assert is_run_id(run_id)
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_.-]{0,254}", stack_name(run_id, "hdd-1"))
    assert not is_run_id("a; rm -rf /")


def test_guests_measure_their_volume_and_never_a_file_in_its_place() -> None:
    client = guests.client_of(Node("c0", "s", "v", "10.0.0.5"), port=8765, nbytes=64)
    assert client.address == "10.0.0.5,8765"
    assert client.fio_options == {"filename": guests.VOLUME, "allow_file_create": "0"}
    script = guests.user_data(port=9000)
    assert script.startswith("#!")
    assert f"link={guests.VOLUME}" in script
    assert "--server=0.0.0.0,9000" in script


def printed(output: str, key: str, *, code: int = 0) -> list[str]:
    """What a guest prints to its console after a job."""
    whole = f"{code} 1763745600.25 1763745612.5 a word\n{output}"
    packed = base64.encodebytes(gzip.compress(whole.encode())).decode().splitlines()
    parts = [f"CEPHFIT-PART {key} {number} {line}" for number, line in enumerate(packed, start=1)]
    copy = [*parts, f"CEPHFIT-PARTS {key} {len(packed)}"]
    return [*copy, *copy, f"CEPHFIT-RESULT-END {key}"]


OUTPUT = "{" + "".join(f'"key{n}": {n}, ' for n in range(200)) + '"jobs": []}'


def test_a_result_on_the_console_is_found_between_the_kernels_lines() -> None:
    lines = printed(OUTPUT, "ab12")
    lines.insert(2, "[   23.101234] EXT4-fs (vda): mounted filesystem")
    console = "\r\n".join(["Linux version 6.1", *printed("an older one", "ff00"), *lines, "login:"])
    found = unpacked(console, "ab12")
    assert found is not None
    assert (found.output, found.began, found.ended) == (OUTPUT, 1763745600.25, 1763745612.5)
    assert (found.code, found.errors) == (0, "a word")


@given(where=st.integers(min_value=0), begin=st.integers(min_value=0), length=st.integers(0, 900))
def test_a_piece_of_the_console_that_is_there_once_more_does_no_harm(where: int, begin: int, length: int) -> None:
    """Nova appends to the file what it read from the terminal, wherever the hypervisor is in a line."""
    console = "\r\n".join([*printed(OUTPUT, "ab12"), ""])
    where, begin = where % len(console), begin % len(console)
    found = unpacked(console[:where] + console[begin : begin + length] + console[where:], "ab12")
    assert found is not None
    assert (found.output, found.code, found.began, found.ended) == (OUTPUT, 0, 1763745600.25, 1763745612.5)


def test_a_result_that_is_not_whole_yet_is_waited_for_and_a_damaged_one_is_said() -> None:
    lines = printed("".join(str(n) for n in range(2000)), "ab12")
    half = len(lines) // 2
    assert unpacked("\n".join(lines[: half - 1]), "ab12") is None
    assert unpacked("\n".join([*lines[:half], ""]), "ab12") is not None, "the second copy need not be waited for"
    assert unpacked("\n".join(lines), "cd34") is None
    damaged = unpacked("\n".join(line for line in lines if "PART ab12 3 " not in line), "ab12")
    assert damaged is not None
    assert damaged.output == ""
    assert "damaged" in damaged.errors


def test_a_result_in_a_signal_is_what_the_guest_put_there() -> None:
    packed = base64.b64encode(gzip.compress(b'{"jobs": []}')).decode()
    found = from_signal(f"0 1763745600.25 1763745612.5 {packed} fio: a word of warning")
    assert (found.output, found.code, found.by) == ('{"jobs": []}', 0, SIGNAL)
    assert (found.began, found.ended) == (1763745600.25, 1763745612.5)
    assert found.errors == "fio: a word of warning"
    assert "damaged" in from_signal("0 1 2 !!! ").errors
    assert "damaged" in from_signal("").errors


def test_a_guest_shows_its_clock_with_the_key_of_its_job() -> None:
    shown = (
        "CEPHFIT-CLOCK ab12 1763745600.25\r\n[ 23.1] kernel\r\nCEPHFIT-CLOCK ff00 1.5\nCEPHFIT-CLOCK ab12 17637456"
    )
    assert readings_of(shown, "ab12") == [1763745600.25]


def test_a_signals_token_is_in_the_user_data_and_nowhere_else() -> None:
    handle = Handle("/stacks/s/1/resources/ready_handle", "http://heat/signal", "gAAAA-secret")
    assert "X-Auth-Token: gAAAA-secret" in user_data("v-1", "true", key="ab12", start=1, handle=handle)
    assert "X-Auth-Token" not in user_data("v-1", "true", key="ab12", start=1)
    assert "secret" not in repr(handle)


def test_results_come_by_a_way_that_is_one() -> None:
    assert parse_choice("openstack:work,results=signal").results == "signal"
    with pytest.raises(InputError, match="results=letter"):
        parse_choice("openstack:work,results=letter")


def test_the_job_of_a_guest_without_network_is_in_its_user_data() -> None:
    script = user_data("v-1", "[c0]\nrw=read\n", key="ab12", start=1763745600)
    (packed,) = re.findall(r'echo "([A-Za-z0-9+/=]+)" \| base64 -d', script)
    assert gzip.decompress(base64.b64decode(packed)).decode() == "[c0]\nrw=read\n"
    assert "-lt 1763745600" in script


@pytest.mark.parametrize("name", ["benchmark", "client", "verification"])
def test_the_templates_are_found_and_every_parameter_is_used(name: str) -> None:
    path = template_path(name)
    assert path == Path(str(path)).absolute()
    text = path.read_text()
    document = yaml.safe_load(text)
    for parameter in document["parameters"]:
        assert f"get_param: {parameter}}}" in text, f"{name}.yaml never uses {parameter}"
