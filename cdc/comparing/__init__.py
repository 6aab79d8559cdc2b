"""Rows of captured tables in the source, compared with the state made from their changelog."""
