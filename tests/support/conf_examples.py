"""The ceph.conf of a site, and settings that it must contain."""

from cephfit.core.values.configuration import Partition, Setting

SITE = b"""# Written by the people of the site.
[global]
\tfsid = 5a3c1a4e-6d6c-4b0e-9a55-6b3a1b9d7f10
\tmon host = 10.0.0.1, 10.0.0.2
\tosd pool default size = 3 ; three copies
[osd]
\tosd max backfills = 1
\tosd_recovery_max_active = 2
[osd.1]
\tosd max backfills = 5
[mon]
\tmon_data_avail_warn = 10
[osd]
\tosd_recovery_max_active = 4
"""


def ceph(scope: str, key: str, value: str | int | float | bool) -> Setting:
    return Setting(Partition.CEPH, scope, key, value)
