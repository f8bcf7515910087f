"""What a guest on the lab's OpenStack records of its own volume, held against fio in it."""

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, target_text
from openstack.connection import Connection

from cephfit.cloud.cloud_choice import parse_choice
from cephfit.cloud.guests.guest_tracing import functions, taken_apart
from cephfit.core.units import LBN_NBYTES, MIB
from cephfit.core.values.configuration import Configuration
from cephfit.targets.openstack_target import OpenStackTarget

pytestmark = [*MARKS, pytest.mark.timeout(600)]

FIO = """\
set -eu
trace_begin /dev/cephfit-volume
fio --name=mixed --filename=/dev/cephfit-volume --ioengine=libaio --iodepth=4 --direct=1 --rw=randrw \
    --bsrange=4k-64k --size=64M --time_based --runtime=5 --output-format=json >/tmp/fio.json
trace_end
cat /tmp/fio.json
"""


@pytest.fixture
def target(cloud_user: Connection) -> Iterator[OpenStackTarget]:
    opened = OpenStackTarget(parse_choice(target_text(cloud_user)))
    opened.begin("captured")
    yield opened
    opened.reset()
    opened.close()


@pytest.mark.takes(seconds=45)
def test_a_guests_trace_has_each_access_that_fio_counted(target: OpenStackTarget) -> None:
    target.apply(Configuration("A"), n_clients=1, volume_nbytes=64 * MIB, fill=False)
    (client,) = target.clients()
    answers = target.run_guest_jobs([client], {client.name: functions("signal") + FIO}, seconds=60)
    result = answers.results[client.name]
    assert (result.code, result.by) == (0, "signal"), result.errors
    output, trace = taken_apart(result.output)
    (job,) = json.loads(output)["jobs"]
    assert trace.lost_events == 0
    queued = [line.split() for line in trace.text.splitlines() if "block_bio_queue" in line]
    for side, letter in (("read", "R"), ("write", "W")):
        n_lbn = [int(fields[-2]) for fields in queued if fields[-5].startswith(letter)]
        assert len(n_lbn) == job[side]["total_ios"] > 0
        assert sum(n_lbn) * LBN_NBYTES == job[side]["io_bytes"]
    assert trace.text.count("block_rq_complete") == len(queued)
