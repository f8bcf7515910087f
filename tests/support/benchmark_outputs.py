"""Outputs of benchmark programs, for the tests of `cephfit import`."""

import json
from typing import Any

FIO_2_OPTIONS = {"bs": "4k", "rw": "randread", "iodepth": "8", "ioengine": "libaio"}


def fio_2(seconds: int = 30, iops: int = 500, **options: str) -> dict[str, Any]:
    """A document of fio 2: ``io_bytes`` in KiB, latencies in microseconds (the form of fio-2.2.10's stat.c).

    The mean latency follows from Little's law: 8 in flight at 500 per second are 16 ms.
    """
    options = {**FIO_2_OPTIONS, **options}
    block_kib = int(options["bs"].removesuffix("k"))
    depth = int(options["iodepth"])
    mean_us = depth / iops * 1e6
    none = {"io_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0, "total_ios": 0, "short_ios": 0, "drop_ios": 0}
    latency = {
        "min": 90,
        "max": round(4 * mean_us),
        "mean": mean_us,
        "stddev": 1.0,
        "percentile": {"50.000000": round(mean_us), "99.000000": round(3 * mean_us), "0.00": 0},
    }
    side = {
        "io_bytes": block_kib * iops * seconds,
        "bw": block_kib * iops,
        "iops": float(iops),
        "runtime": seconds * 1000,
        "total_ios": iops * seconds,
        "short_ios": 0,
        "drop_ios": 0,
        "clat": latency,
    }
    op = "write" if options["rw"].endswith("write") else "read"
    other = "read" if op == "write" else "write"
    entry = {"jobname": "job", "groupid": 0, "error": 0, "job options": options, op: side, other: none}
    return {"fio version": "fio-2.2.10", "timestamp": 1444144664, "jobs": [entry]}


FIO_2_TEXT = """\
job: (g=0): rw=randread, bs=4K-4K/4K-4K/4K-4K, ioengine=libaio, iodepth=8
fio-2.2.10
Starting 1 process

job: (groupid=0, jobs=1): err= 0: pid=71: Tue Oct  6 11:17:44 2015
  read : io=60000KB, bw=2000.0KB/s, iops=500, runt= 30000msec
    slat (usec): min=1, max=199, avg= 1.52, stdev= 0.63
    clat (msec): min=1, max=64, avg=16.00, stdev= 7.10
     lat (msec): min=1, max=64, avg=16.01, stdev= 7.12
    clat percentiles (usec):
     |  1.00th=[ 6000],  5.00th=[ 6100], 50.00th=[15900],
     | 99.00th=[48000], 99.50th=[53000]
    bw (KB  /s): min=392, max=4390, per=99.99%, avg=2000.80, stdev=7784.02
  cpu          : usr=15.14%, sys=84.00%, ctx=8, majf=0, minf=26
  IO depths    : 1=0.1%, 2=0.1%, 4=0.1%, 8=100.0%, 16=0.0%, 32=0.0%, >=64=0.0%
     issued    : total=r=15000/w=0/d=0, short=r=0/w=0/d=0, drop=r=0/w=0/d=0

Run status group 0 (all jobs):
   READ: io=60000KB, aggrb=2000KB/s, minb=2000KB/s, maxb=2000KB/s, mint=30000msec, maxt=30000msec
"""
"""The normal output of fio 2 (fio-2.2.10's stat.c)."""

RADOS_WRITE = """\
hints = 1
Maintaining 16 concurrent writes of 4194304 bytes to objects of size 4194304 for up to 10 seconds or 0 objects
Object prefix: benchmark_data_host_1
  sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)
    0       0         0         0         0         0           -           0
    1      16        42        26    103.98       104    0.588145    0.431675
    2      16        69        53   105.983       108    0.593612    0.500811
Total time run:         10.5
Total writes made:      210
Write size:             4194304
Object size:            4194304
Bandwidth (MB/sec):     80
Stddev Bandwidth:       20.2254
Average IOPS:           20
Stddev IOPS:            5.05635
Average Latency(s):     0.79
Max latency(s):         2.64427
Min latency(s):         0.539447
"""
"""Text of ``rados bench write`` since Jewel (the form of Ceph's src/common/obj_bencher.cc)."""

RADOS_READ = """\
hints = 1
  sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)
    0       0         0         0         0         0           -           0
    1      16        42        26   103.976       104    0.588145    0.431675
    2      15       124       109   108.986       108    0.408214    0.531251
Total time run:       4
Total reads made:     124
Read size:            4194304
Object size:          4194304
Bandwidth (MB/sec):   124
Average IOPS:         31
Average Latency(s):   0.5
Max latency(s):       0.629807
Min latency(s):       0.105
"""
"""Text of ``rados bench seq`` or ``rand``, which it does not distinguish."""

RADOS_HAMMER = """\
 Total time run:         60.231902
Total writes made:      7430
Write size:             4194304
Bandwidth (MB/sec):     493.426

Stddev Bandwidth:       83.2429
Average Latency:        0.129699
"""
"""Totals of ``rados bench`` before Jewel: no ``(s)``, no object size, no IOPS."""

RBD_WRITE = """\
bench  type write io_size 4096 io_threads 16 bytes 1073741824 pattern sequential
  SEC       OPS   OPS/SEC   BYTES/SEC
    1     28896   29027.5   113 MiB/s
    2     53792   26903.4   105 MiB/s
elapsed: 10   ops: 262144   ops/sec: 23917.8   bytes/sec: 93 MiB/s
"""
"""``rbd bench`` (the form of Ceph's src/tools/rbd/action/Bench.cc)."""

TERSE = ";".join(
    [
        *("3", "fio-3.33", "job", "0", "0"),
        *("60000", "2000", "500", "30000", "1", "199", "1.5", "0.6", "90", "64000", "16000.0", "1.0"),
        *(["1.000000%=74"] * 20),
        *("1", "64000", "16001.5", "1.0", "392", "4390", "99.9%", "2000.0", "7.0"),
        *(["0"] * 81),
    ]
)
"""A line of terse output, version 3; fields as in fio's manual."""

CSV = """\
configuration,size,pattern,client,run,iops,iodepth
A,4K,randread,c0,0,500,8
A,4K,randread,c0,1,510,8
ssd,4K,randread,c0,0,900,8
"""


def fio_2_text(**options: str) -> str:
    return json.dumps(fio_2(**options), indent=2)


OUTPUTS = {
    "fio-json": fio_2_text(),
    "fio-text": FIO_2_TEXT,
    "fio-terse": TERSE,
    "rados-bench": RADOS_WRITE,
    "rbd-bench": RBD_WRITE,
    "csv": CSV,
}
"""One output by name of its format."""
