"""A record as the client of a broker gives it."""

from __future__ import annotations

from typing import Any

Headers = list[tuple[str, bytes | None]] | None


class Message:
    """A record of a partition, or the client's word that there is no more."""

    def __init__(
        self, value: bytes | None = b"", headers: Headers = None, *, deliveries: int = 1, **place: Any
    ) -> None:
        self._value, self._headers, self._deliveries = value, headers, deliveries
        self._place = {"topic": "payment", "partition": 0, "offset": 7, "error": None} | place

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers:
        return self._headers

    def topic(self) -> Any:
        return self._place["topic"]

    def partition(self) -> Any:
        return self._place["partition"]

    def offset(self) -> Any:
        return self._place["offset"]

    def error(self) -> Any:
        return self._place["error"]

    def delivery_count(self) -> int:
        return self._deliveries
