"""Connectors that tests leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc import ConnectClient

if TYPE_CHECKING:
    from factfold.stack import LocalStack


def delete_connectors(stack: LocalStack) -> None:
    """Delete every connector: one that idles takes a tenth of a core from the tests that follow."""
    with ConnectClient(stack.info.connect_url) as client:
        for name in client.connectors():
            client.delete(name)
