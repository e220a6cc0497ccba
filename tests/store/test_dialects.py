"""The dialects of SQL define the same queries, with as many parameters, and the same migrations; each exception has its
reason here."""

from __future__ import annotations

import re

from holdfast.store.migrate import functions, migrations
from holdfast.store.queries import load_queries

#: Queries of SQLite alone.
SQLITE = {
    "statements of a write that is one function of PostgreSQL": """
        amend_run append_blob append_keep append_keep_one append_move append_move_one append_records appendable
        claimable claimed count_mail define_first define_next existing give_up_landing head insert_tags is_defined
        advance_thread is_record known_messages open_thread owned_in_queues owned_of_keys touch_run touch_thread
        wake_runs""",
    "the file as a whole; PostgreSQL has programs for that": "backup has_tables schema",
}
#: Queries of PostgreSQL alone.
POSTGRES = {
    "a function that does what several statements of SQLite do": """
        append append_messages create_tagged_runs define deliver""",
    "an append as one statement, since a transaction is a trip to the server each": "append_one append_none",
    "transactions, and which commits are synced: Python begins SQLite's, which always syncs": """
        begin begin_pinned begin_reading settle sync_commits""",
    "several write at once, so what is decided in Python is locked first": """
        lock_runs lock_families lock_thread open_shown""",
    "the search_path of connections": "path pin restore_path",
    "types that the driver asks for": "types",
    "text that is no JSON ends a statement: what it was is read, and summed in Python": "family_rows",
    "the bell is NOTIFY; SQLite's is a file": "notify notify_within",
    "workers live as long as their sessions' locks; SQLite's lock files": """
        database_clock drop_lock let_go lock_holder move_worker ping take_lock
        worker_signs""",
    "the server, its settings and who may create in its schemas": "creators durability server_facts",
    "migrations of a schema that others may be using": "create_schema has_schema lock_migrating",
}
#: Functions that others took the places of.
SUPERSEDED = {"append_1", "append_2", "claim_1", "claim_2", "create_1", "deliver_1", "deliver_2"}
#: Queries that take another number of parameters: SQLite's, PostgreSQL's.
PARAMETERS = {
    "the oldest code that may work with it: a SQLite file is opened by one version at a time": {
        "add_migration": (4, 5)
    },
    "the worker's session and its lock, and what it tells of itself": {"add_worker": (6, 11)},
    "a function of the whole write: conditions, limits, records and blobs": {
        "claim_runs": (10, 21),
        "create_runs": (23, 45),
        "landed": (2, 4),
    },
    "whose run it is done for is checked inside the statement": {"open_question": (12, 15), "put_chunks": (3, 6)},
    "of several mails at once, by place": {"find_mail": (7, 8)},
    "which schema": {"has_migrations": (0, 1), "schema_parts": (0, 1)},
    "a limit, so that the planner takes the index": {"line_of_few": (4, 5)},
    "queues and keys, names and values of tags are two arrays; SQLite's are pairs in JSON": {
        "line_of_keys": (4, 5),
        "runs_by_agent": (12, 13),
        "runs_by_owner": (12, 13),
        "runs_by_parent": (12, 13),
        "runs_by_prefix": (12, 13),
        "runs_by_queue": (12, 13),
        "runs_by_statuses": (12, 13),
        "runs_by_tag": (14, 15),
        "runs_by_thread": (12, 13),
        "runs_newest": (12, 13),
        "runs_of_prefix": (12, 13),
    },
    "what moves in a transaction that is yet to come is not told, in one that was under way it is": {"moves": (2, 4)},
}


def names(listed: dict[str, str]) -> set[str]:
    return {name for text in listed.values() for name in text.split()}


def bare(sql: str) -> str:
    """Without comments and literals."""
    return re.sub(r"--[^\n]*|'[^']*'", "", sql)


def sqlite_parameters(sql: str) -> int:
    sql = bare(sql)
    numbers = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    return len(set(re.findall(r":(\w+)", sql))) + max(numbers, default=0) + len(re.findall(r"\?(?!\d)", sql))


def postgres_parameters(sql: str) -> int:
    sql = bare(sql)
    return max((int(number) for number in re.findall(r"\$(\d+)", sql)), default=0) + len(re.findall(r"\?(?=::)", sql))


def test_the_dialects_have_the_same_queries() -> None:
    sqlite, postgres = set(load_queries("sqlite")), set(load_queries("postgres", "holdfast"))
    assert sqlite - postgres == names(SQLITE)
    assert postgres - sqlite == names(POSTGRES)


def test_queries_of_one_name_take_as_many_parameters() -> None:
    sqlite, postgres = load_queries("sqlite"), load_queries("postgres", "holdfast")
    counts = {
        name: (sqlite_parameters(sqlite[name]), postgres_parameters(postgres[name]))
        for name in set(sqlite) & set(postgres)
    }
    listed = {name: count for each in PARAMETERS.values() for name, count in each.items()}
    assert {name: count for name, count in counts.items() if count[0] != count[1]} == listed


def test_the_dialects_have_the_same_migrations() -> None:
    sqlite, postgres = (
        [(each.number, each.name) for each in migrations(dialect)] for dialect in ("sqlite", "postgres")
    )
    assert sqlite == postgres


# functions


def test_each_function_is_created_by_one_migration_and_has_its_version_in_its_name() -> None:
    made = functions("postgres")
    created = [
        name
        for migration in migrations("postgres")
        for name in re.findall(r"^CREATE FUNCTION \{schema\}\.(\w+)\(", migration.sql, re.MULTILINE)
    ]
    assert sorted(created) == sorted(made), "and none by a text of a migration's own"
    for name, sql in made.items():
        assert re.fullmatch(r"[a-z_]+_\d+", name)
        assert f"CREATE FUNCTION {{schema}}.{name}(" in sql
    assert functions("sqlite") == {}


def test_each_function_is_called() -> None:
    queries = load_queries("postgres", "holdfast")
    texts = [queries[name] for name in queries] + list(functions("postgres").values())
    called = {name for text in texts for name in re.findall(r"(?:holdfast|\{schema\})\.(\w+)\(", text)}
    called = {name for name in called if re.search(r"_\d+$", name)}
    assert called == set(functions("postgres"))
    assert not [name for name in queries if any(f"{each}(" in queries[name] for each in SUPERSEDED)]
