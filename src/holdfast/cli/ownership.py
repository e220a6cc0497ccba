"""Whose files are: code is executed only from where nobody else can have put it.

Ours is what belongs to the user of this process or to root and cannot be written by others. A group may write if it is
the user's own, as on systems where each user has one: it has the user's name and nobody else in it.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from holdfast.store.sqlite.owners import user_name


def foreign_why(found: os.stat_result) -> str:
    """Why a file or folder is not ours, to be told after its name; empty if it is."""
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to {user_name(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid, found.st_uid):
        return f"can be written by the group {_group(found.st_gid)}"
    return ""


def foreign_path(path: Path, *, below: Path) -> str:
    """As `foreign_why`, with its name, of a file and the folders that it is in up to another, wherever links lead."""
    path = path.resolve()
    folders = [each for each in path.parents if each.is_relative_to(below.resolve())] or [path.parent]
    for each in (*folders, path):
        why = foreign_why(each.stat())
        if why:
            return f"{each} {why}"
    return ""


def _is_own_group(gid: int, uid: int) -> bool:
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
