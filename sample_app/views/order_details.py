"""order_details = orders ⋈ customers ⋈ inventory: events, rows and events, joined by two foreign keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections import Table, on, view
from sample_app.customers import Customer
from sample_app.inventory import InventoryItem
from sample_app.orders import Order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Declared columns: folded inside the JVM.
orders = Table.from_events(
    Order,
    key="order_id",
    columns={
        "customer_id": on(Order.Placed).take("customer_id"),
        "sku": on(Order.Placed).take("sku"),
        "quantity": on(Order.Placed).take("quantity"),
        "amount": on(Order.Placed).take("amount"),
        "status": [
            on(Order.Placed).set("placed"),
            on(Order.Held).set("held"),
            on(Order.Released).set("placed"),
            on(Order.Shipped).set("shipped"),
            on(Order.Cancelled).set("cancelled"),
        ],
    },
)
# No columns: the aggregate's own evolve folds its state.
inventory = Table.from_events(InventoryItem, key="sku")
customers = Table.from_changelog(Customer, topic="shop.public.customers")


@view(key="order_id")
def order_details(orders: DataFrame, customers: DataFrame, inventory: DataFrame) -> DataFrame:
    """One row for each order. An order of an unknown customer is left out, one of an unknown article has a row."""
    buyers = customers.select(customers.id.alias("customer_id"), customers.name.alias("customer"), "credit_score")
    articles = inventory.select("sku", "title", (inventory.on_hand - inventory.reserved).alias("free"))
    joined = orders.join(buyers, "customer_id").join(articles, "sku", "left")
    return joined.select("order_id", "status", "customer_id", "customer", "credit_score", "sku", "title", "free",
                         "quantity", "amount")  # fmt: skip
