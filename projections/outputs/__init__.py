"""Views as topics: declared, and published behind the commits that changed them."""
