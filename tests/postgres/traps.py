"""What a stranger can put into `public`: functions and operators that fit our calls better than PostgreSQL's own.

Up to PostgreSQL 14 everybody may create in `public`, and it is in everybody's search_path. A function there does not
hide the built-in one of the same types, but it is preferred where the built-in one takes any type, or another one that
an argument would have to be converted to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from itertools import product
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "deploy"

_CALL = re.compile(r"\b([a-z_]+)\(")
_COMMENT = re.compile(r"--.*")
_NO_FUNCTIONS = {"coalesce", "extract", "greatest"}
_TYPES = "smallint int bigint numeric text boolean bytea jsonb timestamptz oid name".split()
_TYPES += [f"{each}[]" for each in "smallint int bigint text boolean bytea".split()]
_OPERATORS = "= <> < > <= >= || + - * << | ->>".split()

#: Whoever steps into one does something for the stranger, with its own rights.
_CATCH = """
CREATE TABLE public.caught (who text, what text);
GRANT ALL ON public.caught TO PUBLIC;
CREATE FUNCTION public.catch(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.caught VALUES (current_user, what);
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        ALTER ROLE mallory SUPERUSER;
    END IF;
    RAISE EXCEPTION 'caught in %', what;
END $$;
"""


def our_sql() -> str:
    """All of our SQL, without comments."""
    folder = resources.files("holdfast.store").joinpath("sql", "postgres")
    names = ("queries.sql", "lists.sql", "database.sql", "retention.sql", "functions.sql")
    files = [folder.joinpath(name) for name in names]
    files += sorted(folder.joinpath("migrations").iterdir(), key=lambda file: file.name)
    texts = [file.read_text("utf-8") for file in files] + [path.read_text() for path in SCRIPTS.glob("*.sql")]
    return _COMMENT.sub("", "\n".join(texts))


def traps() -> str:
    """The stranger's script: a trap for every name that we call, with every type that it could be called with."""
    return "".join([_CATCH, *_traps()])


def _traps() -> Iterator[str]:
    for name in sorted(set(_CALL.findall(our_sql())) - _NO_FUNCTIONS):
        for one in _TYPES:
            yield _function(name, one)
            yield _function(name, f"text, text, {one}")
        for one, other in product(_TYPES, _TYPES):
            yield _function(name, f"{one}, {other}")
    for one, other in product(_TYPES, _TYPES):
        yield _function("operator_trap", f"{one}, {other}")
        for sign in _OPERATORS:
            yield f"CREATE OPERATOR public.{sign} (LEFTARG = {one}, RIGHTARG = {other}, FUNCTION = operator_trap);"


def _function(name: str, types: str) -> str:
    back = "boolean" if name == "operator_trap" else types.rpartition(", ")[2]
    body = f"BEGIN PERFORM public.catch(''{name}''); END"
    return f"CREATE FUNCTION public.{name}({types}) RETURNS {back} LANGUAGE plpgsql AS '{body}';"
