"""Upgrades of stores that earlier versions of cephfit wrote, as steps of Alembic in ``versions/``.

The number in ``cephfit_schema_version`` is the only record of a store's version: every released cephfit reads it
and refuses a newer store. So Alembic's own version table is not used. Revision ``0002`` upgrades version 1 to 2.

Import this module only if a store needs a step: Alembic takes longer to import than a store takes to open.
"""

import threading
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, select, update

from cephfit.results.store.schema import FIRST_VERSION, SCHEMA_VERSION, schema_version

_ONE_THREAD = threading.Lock()
"""Alembic's ``op`` belongs to one migration at a time in a process."""


def bring_up_to_date(connection: Connection) -> int:
    """Apply every step from the store's version on; inside a transaction that writes.

    Returns:
        The new version of the store.
    """
    # PostgreSQL: a second process waits here until the first has committed, and then reads the new version.
    version = int(connection.execute(select(schema_version.c.version).with_for_update()).scalar_one())
    if version >= SCHEMA_VERSION:
        return version
    scripts = ScriptDirectory(str(Path(__file__).parent))
    done = "base" if version == FIRST_VERSION else f"{version:04}"
    with _ONE_THREAD, Operations.context(MigrationContext.configure(connection)):
        for step in reversed(list(scripts.iterate_revisions("head", done))):
            step.module.upgrade()
            version = int(step.revision)
    connection.execute(update(schema_version).values(version=version))
    return version
