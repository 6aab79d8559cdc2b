"""A service prepared for capture: from an empty database to running connectors, one step after another."""
