"""Count shares in this process, in local processes, or on the workers of a Dask cluster."""

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from typing import Any

from cephfit.core.errors import HostError, InputError
from cephfit.core.optional_modules import optional_module
from cephfit.traces.files.read_ahead import n_cores
from cephfit.traces.parts.shares import Counted, Share, count

_AHEAD = 2
"""Maximum number of shares per core that are counted in advance: their counts take memory."""

PROCESSES = "processes"
"""Name of the scheduler with one process per core."""


def counted(shares: Sequence[Share], scheduler: str | None) -> Generator[Counted, None, None]:
    """Yield the counts of the shares, in their order.

    Args:
        shares: The shares to count.
        scheduler: None: threads of this process, one per core (the compiled loops release Python's lock);
            ``processes``; or the address of a Dask scheduler (``tcp://HOST:8786``) with workers that find the
            files under the same paths.

    Raises:
        InputError: From a share; or no scheduler answers at the address.
        HostError: Dask is not installed; or a process or worker was lost with its share.
    """
    if scheduler is None or (len(shares) == 1 and scheduler == PROCESSES):
        return _by_threads(shares)
    return _by_processes(shares) if scheduler == PROCESSES else _by_dask(shares, scheduler)


def _by_threads(shares: Sequence[Share]) -> Generator[Counted, None, None]:
    if len(shares) == 1 or n_cores() == 1:
        yield from map(count, shares)
        return
    count_concurrently = partial(count, concurrent=True)
    with ThreadPoolExecutor(n_cores()) as pool:
        try:
            waiting = deque(pool.submit(count_concurrently, share) for share in shares[: _AHEAD * n_cores()])
            for share in [*shares[_AHEAD * n_cores() :], *[None] * len(waiting)]:
                yield waiting.popleft().result()
                if share is not None:
                    waiting.append(pool.submit(count_concurrently, share))
        finally:
            pool.shutdown(cancel_futures=True)


def _by_processes(shares: Sequence[Share]) -> Generator[Counted, None, None]:
    # Not forked: a fork copies the locks of threads, but not the threads.
    with ProcessPoolExecutor(min(n_cores(), len(shares)), mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(count, shares)
        except BrokenProcessPool:
            raise HostError(
                "a process that counted a part of the trace ended early",
                where=f"--scheduler {PROCESSES}",
                remedy="check whether memory was exhausted (`dmesg`); without --scheduler, threads of one process "
                "read the trace",
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _by_dask(shares: Sequence[Share], address: str) -> Generator[Counted, None, None]:
    optional_module("distributed", where="--scheduler")
    from distributed import Client, KilledWorker

    try:
        client: Any = Client(address, timeout=10, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at this address: {error}",
            where=f"--scheduler {address}",
            remedy="start one with `dask scheduler`, and `dask worker ADDRESS` where the traces can be read",
        ) from None
    with client:
        futures = client.map(count, list(shares), pure=False)
        try:
            for future in futures:
                yield future.result()
        except (KilledWorker, CancelledError, ModuleNotFoundError, OSError) as error:
            # An unreadable file is an InputError of its share; these are errors of the cluster.
            raise HostError(
                f"the Dask cluster lost a part of the work: {type(error).__name__}: {_first_line(error)}",
                where=f"--scheduler {address}",
                remedy="check the logs of its scheduler and workers (memory exhausted? cephfit not installed?), "
                "then profile the trace again",
            ) from None
        finally:
            with suppress(CancelledError, OSError):
                client.cancel(futures)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no reason given").splitlines()[0]
