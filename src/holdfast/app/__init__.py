"""The composition root: where the parts are put together."""

from holdfast.app.app import Holdfast
from holdfast.app.bridge import arun, run
from holdfast.app.connection import connect
from holdfast.app.looks import WorkerInfo

__all__ = ["Holdfast", "WorkerInfo", "arun", "connect", "run"]
