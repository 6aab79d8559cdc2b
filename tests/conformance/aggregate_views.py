"""Group-by views of every aggregate, and their SQL, which an engine of its own runs: DuckDB, with Spark's types."""

from __future__ import annotations

import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import ProjectionGroup, Table, sql_view, view

METADATA = sa.MetaData()
SALES = sa.Table(
    "sales", METADATA, sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("shop_id", sa.BigInteger),
    sa.Column("kind", sa.Text), sa.Column("pieces", sa.Integer), sa.Column("grams", sa.BigInteger),
    sa.Column("price", sa.Numeric(12, 2)), sa.Column("day", sa.Date),
)  # fmt: skip
SHOPS = sa.Table(
    "shops", METADATA, sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("region", sa.Text)
)  # fmt: skip

sales = Table.from_changelog(SALES, topic="aisle.public.sales")
shops = Table.from_changelog(SHOPS, topic="aisle.public.shops")


@view(by="shop_id")
def sums(sales):
    return sales.groupBy("shop_id").agg(
        F.count("*").alias("n"),
        F.count("grams").alias("weighed"),
        F.sum("pieces").alias("pieces"),
        F.sum("grams").alias("grams"),
        F.sum("price").alias("price"),
        F.avg("price").alias("mean_price"),
        F.avg("pieces").alias("mean_pieces"),
        F.avg("grams").alias("mean_grams"),
    )


@view(by="shop_id")
def extremes(sales):
    return sales.groupBy("shop_id").agg(
        F.min("pieces").alias("fewest"), F.max("price").alias("dearest"),
        F.min("day").alias("first_day"), F.max("kind").alias("last_kind"),
    )  # fmt: skip


@view(by=("kind", "shop_id"))
def compounds(sales):
    some = sales.where("pieces > 1 OR pieces IS NULL").withColumn("value", F.col("price") * F.col("pieces"))
    found = some.groupBy("kind", "shop_id").agg(
        F.sum("value").alias("value"),
        F.coalesce(F.sum("price"), F.lit(0)).alias("total"),
        F.expr("sum(grams) FILTER (WHERE pieces < 5)").alias("few_grams"),
    )
    doubled = found.alias("f").withColumn("twice", F.col("few_grams") * 2)
    return doubled.select("shop_id", "kind", (F.col("value") + 1).alias("more"), "total", "twice")


@view(by="shop_id")
def mixed(sales):
    in_order = F.struct("day", "id")
    return sales.groupBy("shop_id").agg(
        F.sum("grams").alias("grams"),
        F.count_distinct("kind").alias("kinds"),
        F.min_by("price", in_order).alias("first_price"),
        F.max_by("kind", in_order).alias("latest_kind"),
        F.array_join(F.sort_array(F.collect_list("kind")), ",").alias("every_kind"),
    )


@view(key="id")
def sale_regions(sales, shops):
    places = shops.select(F.col("id").alias("shop_id"), "region")
    return sales.join(places, "shop_id", "left").select("id", "region", "grams", "pieces")


regions = sql_view(
    "regions",
    "SELECT region, count(*) AS n, sum(grams) AS grams, max(pieces) AS most FROM sale_regions GROUP BY region",
    tables={"sale_regions": sale_regions},
)

SQL = {
    "sums": """
        SELECT shop_id, count(*) AS n, count(grams) AS weighed, sum(pieces)::BIGINT AS pieces,
            sum(grams)::BIGINT AS grams, sum(price)::DECIMAL(22, 2) AS price,
            (sum(price) / count(price))::DECIMAL(16, 6) AS mean_price,
            avg(pieces) AS mean_pieces, avg(grams) AS mean_grams
        FROM sales GROUP BY shop_id""",
    "extremes": """
        SELECT shop_id, min(pieces) AS fewest, max(price) AS dearest, min(day) AS first_day, max(kind) AS last_kind
        FROM sales GROUP BY shop_id""",
    "compounds": """
        SELECT shop_id, kind, (sum(price * pieces) + 1)::DECIMAL(38, 2) AS more,
            coalesce(sum(price), 0)::DECIMAL(22, 2) AS total,
            2 * (sum(grams) FILTER (WHERE pieces < 5))::BIGINT AS twice
        FROM sales WHERE pieces > 1 OR pieces IS NULL GROUP BY kind, shop_id""",
    "mixed": """
        SELECT shop_id, sum(grams)::BIGINT AS grams, count(DISTINCT kind) AS kinds,
            first(price ORDER BY day NULLS FIRST, id) AS first_price,
            first(kind ORDER BY day DESC NULLS LAST, id DESC) AS latest_kind,
            coalesce(string_agg(kind, ',' ORDER BY kind), '') AS every_kind
        FROM sales GROUP BY shop_id""",
    "sale_regions": """
        SELECT s.id, p.region, s.grams, s.pieces FROM sales s LEFT JOIN shops p ON s.shop_id = p.id""",
    "regions": """
        SELECT region, count(*) AS n, sum(grams)::BIGINT AS grams, max(pieces) AS most
        FROM sale_regions GROUP BY region""",
}

GROUP = ProjectionGroup("aisle", [sums, extremes, regions])
WITHOUT_DOUBLES = ProjectionGroup("exact_aisle", [extremes, compounds, mixed, regions])
