"""The composition root: where the parts are put together."""

from holdfast.app.app import Holdfast, WorkerInfo, arun, connect, run

__all__ = ["Holdfast", "WorkerInfo", "arun", "connect", "run"]
