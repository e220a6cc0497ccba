"""People, as a request shows them: their name, what they may do, and how they came."""

from __future__ import annotations

from enum import StrEnum

from holdfast.base.data import data
from holdfast.model import Via


class Role(StrEnum):
    """What somebody may do; each may do what those before may."""

    viewer = "viewer"  #: look
    operator = "operator"  #: act on runs, questions, effects in doubt; pause what starts runs
    admin = "admin"  #: change definitions, and remove them

    def may(self, needed: Role) -> bool:
        """Is that enough for what needs a role?"""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@data
class Person:
    """Who makes a request. The name is the `by` of what is done."""

    name: str
    role: Role
    via: Via
    is_ambient: bool  #: the browser says so by itself, whoever wrote the page that asks
