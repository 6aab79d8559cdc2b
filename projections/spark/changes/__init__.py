"""Debezium's change events to rows, inside the JVM."""
