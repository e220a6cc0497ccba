"""What is wrong with a store, as `check` finds it: a text for people, and what it is about, for programs."""

from __future__ import annotations

from enum import StrEnum

from holdfast.base.data import data


class Concern(StrEnum):
    """What a problem is about."""

    damage = "damage"  #: the data, or the tables that it is in
    loss = "loss"  #: a setting with which what is written can be lost
    access = "access"  #: who may read or change it
    owner = "owner"  #: whose the files are
    place = "place"  #: where it lies, and what is around it


@data
class Problem:
    """One thing that is wrong with a store."""

    concern: Concern
    text: str

    def __str__(self) -> str:
        return self.text
