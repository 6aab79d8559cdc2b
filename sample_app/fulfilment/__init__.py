"""Fulfilment: the process that carries an order from its placing to its parcel, or undoes it."""

from sample_app.fulfilment.books import Books
from sample_app.fulfilment.process import Fulfilment

__all__ = ["Books", "Fulfilment"]
