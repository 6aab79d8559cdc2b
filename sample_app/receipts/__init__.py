"""Receipts: one for each payment that is not suspicious."""

from sample_app.receipts.printing import PrinterJammed, Receipts, receipts

__all__ = ["PrinterJammed", "Receipts", "receipts"]
