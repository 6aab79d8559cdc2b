"""Inventory: event-sourced, one aggregate an article."""

from sample_app.inventory.item import InventoryItem

__all__ = ["InventoryItem"]
