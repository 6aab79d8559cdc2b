"""A column of every type that MySQL and MariaDB share, and what is written to them: the rows of the recordings."""

from __future__ import annotations

from typing import Final

DATABASE: Final = "shop"
TABLE: Final = "every_type"
# Column → (type, a value, the value at the edge of what the type holds), as SQL.
COLUMNS: Final = {
    "a_tinyint": ("tinyint", "7", "-128"),
    "a_boolean": ("boolean", "true", "false"),
    "a_smallint": ("smallint", "7", "-32768"),
    "a_mediumint": ("mediumint", "7", "-8388608"),
    "an_int": ("int", "7", "-2147483648"),
    "an_unsigned_int": ("int unsigned", "7", "4294967295"),
    "a_bigint": ("bigint", "7", "-9223372036854775808"),
    "an_unsigned_bigint": ("bigint unsigned", "7", "18446744073709551615"),
    "a_decimal": ("decimal(12,4)", "12.5", "-99999999.9999"),
    "a_float": ("float", "1.5", "-3.4028234e38"),
    "a_double": ("double", "1.5", "-1.7976931348623157e308"),
    "a_bit": ("bit(1)", "b'1'", "b'0'"),
    "bits": ("bit(10)", "b'1000000001'", "b'1111111111'"),
    "a_date": ("date", "'2013-01-31'", "'9999-12-31'"),
    "a_time": ("time", "'13:14:15'", "'838:59:59'"),
    "a_time_6": ("time(6)", "'13:14:15.123456'", "'-838:59:59.000000'"),
    "a_datetime": ("datetime", "'2013-01-31 13:14:15'", "'9999-12-31 23:59:59'"),
    "a_datetime_6": ("datetime(6)", "'2013-01-31 13:14:15.123456'", "'1000-01-01 00:00:00.000001'"),
    "a_timestamp": ("timestamp null", "'2013-01-31 13:14:15'", "'2038-01-19 03:14:07'"),
    "a_timestamp_6": ("timestamp(6) null", "'2013-01-31 13:14:15.123456'", "'1970-01-01 00:00:01.000001'"),
    "a_year": ("year", "2013", "2155"),
    "a_char": ("char(5)", "'ab'", "'é€😀'"),
    "a_varchar": ("varchar(20)", "'ab'", "''"),
    "a_text": ("text", "'ab'", "'é€😀'"),
    "a_binary": ("binary(4)", "x'00ff'", "x'00000000'"),
    "a_varbinary": ("varbinary(4)", "x'00ff'", "''"),
    "a_blob": ("blob", "x'00ff'", "''"),
    "an_enum": ("enum('calm','cross')", "'cross'", "'calm'"),
    "a_set": ("set('a','b','c')", "'a,c'", "''"),
    "a_json": ("json", "'{\"a\": [1, null, 1.5]}'", "'null'"),
    "a_point": ("point", "ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(-1.5 0)')"),
}
_SET_UP: Final = f"""
CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;
CREATE TABLE {DATABASE}.{TABLE} (id int PRIMARY KEY, {{columns}});
CREATE TABLE {DATABASE}.moments (moment datetime(6), number bigint unsigned, note text, PRIMARY KEY (moment, number));
"""


def create() -> str:
    """The statements that make the tables."""
    return _SET_UP.format(columns=", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items()))


def insert(first: int) -> str:
    """Three rows, of ids from `first`: of values, of edges, of nulls."""
    rows = (
        [value for _, value, _ in COLUMNS.values()],
        [edge for _, _, edge in COLUMNS.values()],
        ["NULL"] * len(COLUMNS),
    )
    return "".join(f"INSERT INTO {TABLE} VALUES ({first + n}, {', '.join(row)});" for n, row in enumerate(rows))


# After the snapshot: the same rows again, changes of each kind, dates that are none, a key that is hard to encode.
CHANGES: Final = (
    insert(11),
    f"UPDATE {TABLE} SET a_varchar = 'changed' WHERE id = 11;",
    f"UPDATE {TABLE} SET id = 21 WHERE id = 12;",
    f"DELETE FROM {TABLE} WHERE id = 13;",
    f"SET sql_mode = ''; INSERT INTO {TABLE} (id, a_date, a_datetime, a_timestamp)"
    " VALUES (31, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00');",
    "INSERT INTO moments VALUES ('2013-01-31 13:14:15.123456', 18446744073709551615, 'key');",
    "DELETE FROM moments;",
    f"TRUNCATE {TABLE};",
    f"INSERT INTO {TABLE} (id) VALUES (99);",
)
LAST_KEY: Final = 99
