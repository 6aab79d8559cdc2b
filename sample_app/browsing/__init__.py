"""Browsing: what visitors search for, and what they click."""

from sample_app.browsing.session import Session
from sample_app.browsing.visitors import Visitors

__all__ = ["Session", "Visitors"]
