"""`factfold up`."""


def up() -> None:
    """Soon."""
