"""The tables of Nexmark at toy size, over two minutes. No two prices, and no two times of bids, are equal."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from tests.conformance.toy_tables import Key, Toy, toy

CHANNELS = ("Apple", "Google", "Facebook", "Baidu", "channel-7", "channel-9")
AUCTIONS = range(41, 41 * 41, 41)  # every third id is a multiple of 123, for which q2 asks
SELLERS = range(1, 31)
BEGIN = datetime(2026, 3, 1, 23, 59)  # two days, and hours from 23 to 0


def _moment(chance: random.Random) -> datetime:
    return BEGIN + timedelta(microseconds=chance.randrange(120_000_000))


def _person(chance: random.Random, key: Key) -> Sequence[Any]:
    name = chance.choice(("Ann", "Bob", "Eve"))
    city = chance.choice(("Boise", "Portland", "Kent"))
    return name, f"{name}@{key[0]}", f"{key[0]:04}", city, chance.choice(("OR", "ID", "CA", "WA")), _moment(chance), ""


def _auction(chance: random.Random, key: Key) -> Sequence[Any]:
    begin, first = _moment(chance), chance.randrange(1, 100)
    ends = begin + timedelta(seconds=chance.randrange(20, 120))
    seller, category = chance.choice(SELLERS), chance.randrange(10, 13)
    return f"item {key[0]}", "as new", first, first + 50, begin, ends, seller, category, chance.choice("abc")


def _bids() -> Any:
    number = count()

    def bid(chance: random.Random, key: Key) -> Sequence[Any]:
        price = int(10 ** chance.uniform(3, 8)) // 1000 * 1000 + next(number) % 1000
        channel = chance.choice(CHANNELS)
        query = f"&channel_id={channel[-1]}" if chance.random() < 0.5 else ""
        url = f"https://auction.example/{chance.choice('xyz')}/{channel}/item.htm?query=1{query}"
        return (
            chance.choice(AUCTIONS), chance.choice(SELLERS[:12]), price, channel, url, _moment(chance),
            chance.choice(("", "c", "accc")),
        )  # fmt: skip

    return bid


def nexmark() -> dict[str, Toy]:
    """The tables by name, whose bids have prices of their own."""
    return dict(
        toy("nexmark", *columns)
        for columns in (
            (
                "person: id long, name text, emailAddress text, creditCard text, city text, state text, dateTime time,"
                " extra text",
                SELLERS,
                _person,
            ),
            (
                "auction: id long, itemName text, description text, initialBid long, reserve long, dateTime time,"
                " expires time, seller long, category long, extra text",
                AUCTIONS,
                _auction,
            ),
            (
                "bid: id long, auction long, bidder long, price long, channel text, url text, dateTime time,"
                " extra text",
                range(1, 301),
                _bids(),
            ),
            (
                "side_input: key long, value text",
                AUCTIONS[::2],
                lambda chance, key: (f"{key[0]}{chance.choice('abc')}",),
            ),
        )
    )
