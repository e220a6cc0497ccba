"""A worker's shift: it executes runs until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from contextlib import suppress

from holdfast.base.telemetry import info
from holdfast.errors import StoreError
from holdfast.worker.executor import Executor
from holdfast.worker.sweep import Attendant


async def serve(executor: Executor, attendant: Attendant) -> None:
    """Return at SIGTERM or SIGINT, when nothing more is taken up; what is under way is still there."""
    attendant.nudge()
    gc.freeze()  # what is loaded by now stays; runs come and go by the thousand
    gc.set_threshold(20_000, 5, 10)
    stopped = asyncio.Event()
    loop, signals = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    if threading.current_thread() is threading.main_thread():
        for each in signals:
            loop.add_signal_handler(each, stopped.set)
    info("worker.started", worker=executor.lease.worker_id, agents=sorted(executor.agents))
    try:
        while not stopped.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), 1.0)
            if executor.lease.is_lost:
                raise StoreError("This worker was removed by another process; start a new one.")
            if executor.store.failure is not None:
                raise executor.store.failure
        info("worker.stopping", worker=executor.lease.worker_id, runs=len(executor.executions))
        await attendant.stop()
    finally:
        if threading.current_thread() is threading.main_thread():
            for each in signals:
                loop.remove_signal_handler(each)
