"""Customers with their credit scores: ordinary CRUD tables, captured by Debezium."""

from sample_app.customers.model import Customer

__all__ = ["Customer"]
