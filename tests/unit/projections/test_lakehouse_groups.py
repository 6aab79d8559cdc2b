"""Groups that are not kept in Delta Lake are refused before anything is made; URLs of it are told apart."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from projections import Table
from projections.errors import InvalidDefinition, TableStoreUnavailable
from projections.spark.lakehouse.places import require_storable
from projections.stores.opening import delta_root, open_table_store, sqlite_path

MODEL = sa.Table("prices", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True))


def group_of(table):
    return SimpleNamespace(name="g", tables={"prices": table})


def test_a_table_of_versions_is_refused_and_current_rows_are_not():
    require_storable(group_of(Table.from_changelog(MODEL, topic="shop.public.prices")))
    with pytest.raises(InvalidDefinition, match="versions of rows"):
        require_storable(group_of(Table.versions_of(MODEL, topic="shop.public.prices")))


def test_personal_columns_are_refused():
    with pytest.raises(InvalidDefinition, match="personal columns") as caught:
        require_storable(group_of(SimpleNamespace(personal=("name",))))
    assert "PostgreSQL" in caught.value.remedy


def test_a_url_of_delta_is_no_database_and_takes_a_spark():
    assert (delta_root("delta:s3a://shop/views"), delta_root("sqlite:///a.db")) == ("s3a://shop/views", None)
    assert sqlite_path("delta:/lake/views") is None
    with pytest.raises(TableStoreUnavailable, match="read by Spark"):
        open_table_store("delta:/lake/views")
