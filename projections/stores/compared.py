"""The states of a group's captured tables, of the generation that serves, as `cdc.compare_tables` reads them.

    with ComparedGroup("postgresql+psycopg://shop@db/views", shop_views) as group:
        comparisons = compare(engine, source, group.tables, settings)

No comparison writes into them. The keys of records are texts, one text for one value: that of
`cdc.comparing.canonical`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from cdc.changes.change_event import ChangeDecoder
from cdc.comparing.canonical import SESSION, ColumnForm, Kind
from cdc.comparing.report import CapturedModel, StateTable
from eventstore.closing import Closing
from projections.declaring import columns as kinds
from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.declaring.tables import ChangelogTable
from projections.errors import RunRetired
from projections.stores.dialects import POSTGRES
from projections.stores.layout import generation_name
from projections.stores.opening import open_table_store
from projections.stores.runs import SERVING, Run, require_unchanged

_KINDS: Final[Mapping[kinds.Kind, Kind]] = {
    "string": "text", "int": "integer", "long": "integer", "double": "double", "boolean": "boolean",
    "decimal": "decimal", "timestamp": "local moment", "date": "date", "binary": "bytes",
}  # fmt: skip
_MEANINGS: Final[Mapping[kinds.Meaning, Kind]] = {
    "map": "map", "time": "time", "zoned time": "zoned time", "zoned": "moment", "interval": "interval",
    "uuid": "uuid",
}  # fmt: skip

_DIALECT: Final[sa.Dialect] = postgresql.dialect()  # type: ignore[no-untyped-call]


def form_of(column: ColumnType) -> ColumnForm:
    """What the values of a column stand for."""
    if column.items is not None:
        return ColumnForm("list", form_of(column.items))
    if column.shape:
        return ColumnForm("shaped")
    if column.bits is not None:
        return ColumnForm("bits")
    kind = _MEANINGS[column.meaning] if column.meaning else _KINDS[column.kind]
    return ColumnForm(kind, scale=column.scale)


def captured_models(group: ProjectionGroup) -> tuple[CapturedModel, ...]:
    """Return the captured tables of a group as its models declare them, for `diagnose_connector`; asks no database."""
    tables = {name: table for name, table in group.tables.items() if isinstance(table, ChangelogTable)}
    return tuple(CapturedModel(**_declared(group, name, table)) for name, table in tables.items())


def _declared(group: ProjectionGroup, name: str, table: ChangelogTable) -> dict[str, Any]:
    forms = {column: form_of(kind) for column, kind in table.columns.items()}
    return {"name": f"{group.name}.{name}", "topic": table.topic, "key": table.key, "forms": forms,
            "encoding": table.encoding, "fields": table.record_names}  # fmt: skip


class ComparedGroup(Closing):
    """The states of a group's captured tables, for `compare_tables`. ``url`` is SQLAlchemy's of the views' database.

    Raises NoServingGeneration, DefinitionChanged or TableStoreUnavailable.

    Examples:
        >>> with ComparedGroup("postgresql+psycopg://…", shop_views) as states:
        ...     tables = compare_tables(engine, source, states.tables, Settings())
    """

    def __init__(self, url: str, group: ProjectionGroup) -> None:
        self._store = open_table_store(url)
        self._group = group
        try:
            state = self._store.serving_state(group.name)
            require_unchanged(group, state, state.built.get("columns", {}))
        except BaseException:
            self._store.close()
            raise
        self._run = state.run

    @property
    def tables(self) -> tuple[StateTable, ...]:
        """The captured tables whose current rows the group stores."""
        named = self._group.tables.items()
        return tuple(self._state(name, table) for name, table in named if isinstance(table, ChangelogTable))

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    def _state(self, name: str, table: ChangelogTable) -> StateTable:
        generation, in_file = generation_name(self._group.name, self._run.generation), not self._has_schemas
        return StateTable(
            **_declared(self._group, name, table),
            types={} if in_file else {column: _sql_type(kind) for column, kind in table.columns.items()},
            relation=f'"{generation}$state_{name}"' if in_file else f'"{generation}"."state_{name}"',
            decode_key=key_decoder(table),
            connect=self._connect,
            writing=self._store.transaction,
            progress=lambda: self._progress(table.topic),
            place=self._run.place,
        )

    @property
    def _has_schemas(self) -> bool:
        return self._store.dialect.has_schemas

    @contextmanager
    def _connect(self) -> Iterator[sa.Connection]:
        with self._store.looking() as connection:
            if self._has_schemas:
                connection.detach()  # the settings of its session stay with it
                for setting in SESSION:
                    connection.exec_driver_sql(setting)
            yield connection

    def _progress(self, topic: str) -> Mapping[int, int]:
        state = self._store.state(self._run)
        if state is None or state.status != SERVING:
            raise _retired(self._run)
        return state.progress.get(topic, {})


def _sql_type(column: ColumnType) -> str:
    return POSTGRES.column_type(column).compile(dialect=_DIALECT)


def _retired(run: Run) -> RunRetired:
    return RunRetired(
        "the generation that was compared serves no more: a cut-over or a rollback has let another one serve",
        remedy="compare again: it takes the generation that serves now",
        place=run.place,
    )


def key_decoder(table: ChangelogTable) -> Callable[[bytes, str], tuple[str, ...]]:
    """Return what reads the key of a record at a place; UndecodableChange.

    Keys in Avro are not read: their records are not written again.
    """
    fields = {table.record_name(name): table.columns[name] for name in table.key}
    columns = (sa.Column(field, _type_of(kind), primary_key=True) for field, kind in fields.items())
    decoder = ChangeDecoder(sa.Table(table.name or "rows", sa.MetaData(), *columns))

    def decode(key: bytes, place: str) -> tuple[str, ...]:
        row = decoder.decode(key, None, offset=0, place=place).key
        return tuple(key_text(row[field]) for field in fields)

    return decode


def _type_of(column: ColumnType) -> sa.types.TypeEngine[Any]:
    if column.meaning == "uuid":
        return sa.Uuid()
    if column.kind == "timestamp":
        return sa.DateTime(timezone=column.meaning == "zoned")
    return POSTGRES.column_type(column)


def key_text(value: Any) -> str:
    """The canonical text of a value of a key."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return _trimmed(f"{value:f}") if value else "0"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime):
        plain = value.replace(tzinfo=None).isoformat(" ")
        return plain.rstrip("0") if value.microsecond else plain
    return str(value)


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
