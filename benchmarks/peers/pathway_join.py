"""Orders joined with their customers by Pathway, from two topics into a table; argument: JSON with all names."""

import json
import sys

import pathway as pw


class Order(pw.Schema):
    """An order."""

    order_id: int = pw.column_definition(primary_key=True)
    customer: int
    amount: int


class Customer(pw.Schema):
    """A customer."""

    customer_id: int = pw.column_definition(primary_key=True)
    city: str


given = json.loads(sys.argv[1])


def changes(topic, schema, **fields):
    """The rows of a topic. Its ``id`` has another name here: Pathway has that for itself."""
    return pw.io.kafka.read(
        {"bootstrap.servers": given["brokers"], "group.id": f"pathway-{topic}", "auto.offset.reset": "earliest"},
        topic=topic,
        schema=schema,
        format="json",
        json_field_paths={column: f"/after/{fields.get(column, column)}" for column in schema.column_names()},
        autocommit_duration_ms=500,
    )


orders = changes(given["orders"], Order, order_id="id", customer="customer_id")
customers = changes(given["customers"], Customer, customer_id="id")
joined = orders.join(customers, orders.customer == customers.customer_id)
rows = joined.select(orders.order_id, orders.amount, customers.city)
server = given["postgres"]
settings = {
    "host": server["host"],
    "port": str(server["port"]),
    "dbname": server["database"],
    "user": server["user"],
    "password": server.get("password", ""),
}
pw.io.postgres.write(rows, settings, given["table"], output_table_type="snapshot", primary_key=[rows.order_id])
print("reads", flush=True)
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
