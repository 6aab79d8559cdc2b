"""What else can happen to rows: values stored apart, keys changed, tables emptied, messages, snapshots taken again."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Integer, MetaData, Numeric, Table, Text

APART: Final = "public.stored_apart"
WHOLE: Final = "public.whole_before"
APART_WHOLE: Final = "public.apart_whole"
SIGNALS: Final = "public.factfold_signal"
TABLES: Final = (APART, WHOLE, APART_WHOLE)
MODEL: Final = Table(
    "whole_before",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("amount", Numeric(12, 2)),
    Column("notes", Text),
)
MESSAGES: Final = 2
ROWS_TAKEN_AGAIN: Final = 1

_LONG: Final = "long" * 750

CREATE: Final = (
    "CREATE TABLE public.stored_apart (id integer PRIMARY KEY, label text NOT NULL, notes text, raw bytea, "
    "doc jsonb, words text[], numbers integer[], bigs bigint[], ratios double precision[], flags boolean[], "
    "uids uuid[], days date[], moments timestamp[], amounts numeric(12,2)[])",
    *(
        f"ALTER TABLE public.stored_apart ALTER {column} SET STORAGE EXTERNAL"
        for column in ("notes", "raw", "doc", "words", "numbers", "bigs", "ratios", "flags", "uids", "days",
                       "moments", "amounts")
    ),
    "CREATE TABLE public.apart_whole (id integer PRIMARY KEY, label text NOT NULL, ratios double precision[])",
    "ALTER TABLE public.apart_whole ALTER ratios SET STORAGE EXTERNAL",
    "ALTER TABLE public.apart_whole REPLICA IDENTITY FULL",
    "CREATE TABLE public.whole_before (id integer PRIMARY KEY, name text NOT NULL, amount numeric(12,2), notes text)",
    "ALTER TABLE public.whole_before REPLICA IDENTITY FULL",
    "CREATE TABLE public.factfold_signal (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))",
    "INSERT INTO public.whole_before VALUES (1, 'Ann', 12.50, 'before any stream'), (9, 'Gone', NULL, NULL)",
)  # fmt: skip
PREPARE: Final = (
    "ALTER PUBLICATION recorder SET (publish = 'insert, update, delete, truncate')",
    "GRANT INSERT ON public.factfold_signal TO recorder",
)
_APART: Final = (
    f"INSERT INTO public.stored_apart SELECT 1, 'first', '{_LONG}', '{_LONG}'::bytea, "
    f"jsonb_build_object('long', '{_LONG}'), ARRAY['{_LONG}'], array_agg(n), array_agg(n::bigint), "
    "array_agg(n::float8), "
    "array_agg(mod(n, 2) = 0), array_agg('a1b2c3d4-0000-4000-8000-000000000001'::uuid), array_agg('2024-01-02'::date), "
    "array_agg('2024-01-02 03:04:05'::timestamp), array_agg(n::numeric(12,2)) FROM generate_series(1, 2500) n"
)
# One transaction each.
CHANGES: Final = (
    (_APART,),
    ("INSERT INTO public.apart_whole SELECT 1, 'first', array_agg(n::float8) FROM generate_series(1, 300) n",),
    ("UPDATE public.apart_whole SET label = 'second' WHERE id = 1",),
    ("UPDATE public.stored_apart SET label = 'second' WHERE id = 1",),
    ("UPDATE public.stored_apart SET id = 2 WHERE id = 1",),
    ("DELETE FROM public.stored_apart WHERE id = 2",),
    ("INSERT INTO public.whole_before VALUES (2, 'Bob', 1.00, NULL)",),
    ("UPDATE public.whole_before SET amount = 13 WHERE id = 1",),
    ("UPDATE public.whole_before SET id = 22 WHERE id = 2",),
    ("DELETE FROM public.whole_before WHERE id = 9",),
    ("SELECT pg_logical_emit_message(true, 'audit', 'said within')",),
    ("TRUNCATE public.whole_before",),
    ("INSERT INTO public.whole_before VALUES (3, 'Cid', NULL, NULL)",),
    (
        "INSERT INTO public.factfold_signal VALUES ('again', 'execute-snapshot', "
        '\'{"type": "incremental", "data-collections": ["public.whole_before"]}\')',
    ),
    ("SELECT pg_logical_emit_message(false, 'audit', 'said alone')",),
)
