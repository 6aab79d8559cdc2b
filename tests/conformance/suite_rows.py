"""The rows of TPC-H and of Nexmark, small."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

from tests.conformance.toy_tables import Key, Toy, toy

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3),
    ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4),
    ("KENYA", 0), ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4),
    ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
)  # fmt: skip
HOMES = (2, 3, 6, 7, 8, 20)  # of customers and suppliers: the nations that the queries ask for
WORDS = ("forest", "green", "navy", "linen")
BOXES = (("Brand#12", "SM BOX"), ("Brand#23", "MED BOX"), ("Brand#34", "LG BOX"), ("Brand#45", "WRAP JAR"))
TYPES = ("PROMO BRUSHED BRASS", "ECONOMY ANODIZED STEEL", "MEDIUM POLISHED BRASS", "STANDARD PLATED TIN")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
SEGMENTS = ("BUILDING", "AUTOMOBILE", "MACHINERY")
COMMENTS = ("even deposits", "quick special packed requests", "Customer even Complaints")
PAIRS = [(part, 1 + (part * 7 + n * 3) % 20) for n in range(2) for part in range(1, 41)][:60]


def _money(chance: random.Random, low: int, high: int) -> Decimal:
    return Decimal(chance.randrange(low * 100, high * 100)) / 100


def _party(chance: random.Random, key: Key, kind: str) -> tuple[Any, ...]:
    """Name, address, nation, phone and balance of a supplier or customer."""
    home = chance.choice(HOMES)
    phone = f"{home + 10}-{chance.randrange(100, 999)}"
    return f"{kind}#{key[0]:09}", f"street {chance.randrange(99)}", home, phone, _money(chance, -900, 9000)


def _nation(chance: random.Random, key: Key) -> Sequence[Any]:
    name, region = NATIONS[key[0]]
    return name, chance.choice([region] * 6 + [chance.randrange(5)]), chance.choice(COMMENTS)


def _part(chance: random.Random, _: Key) -> Sequence[Any]:
    brand, box = chance.choice(BOXES)
    name, size = " ".join(chance.sample(WORDS, 2)), chance.choice((1, 3, 5, 9, 14, 15, 15))
    maker = f"Manufacturer#{chance.randrange(1, 4)}"
    return name, maker, brand, chance.choice(TYPES), size, box, _money(chance, 900, 2000), chance.choice(COMMENTS)


def _ordered(order: int) -> date:
    return date(1993, 7, 1) + timedelta(days=order * 12)


def _order(chance: random.Random, key: Key) -> Sequence[Any]:
    day = _ordered(key[0]) + timedelta(days=chance.randrange(9))
    # Every third customer has no orders.
    buyer = chance.choice([c for c in range(1, 31) if c % 3])
    state, total = chance.choice("FFOP"), _money(chance, 900, 90000)
    return buyer, state, total, day, chance.choice(PRIORITIES), f"Clerk#{key[0] % 9}", 0, chance.choice(COMMENTS)


def _line(chance: random.Random, key: Key) -> Sequence[Any]:
    part, supplier = chance.choice(PAIRS)
    shipped, promised = (_ordered(key[0]) + timedelta(days=chance.randrange(*days)) for days in ((1, 90), (40, 120)))
    received = shipped + timedelta(days=chance.randrange(1, 31))
    quantity, price = Decimal(chance.randrange(1, 51)), _money(chance, 900, 9000)
    discount, tax = Decimal(chance.randrange(3, 9)) / 100, Decimal(chance.randrange(9)) / 100
    ship = chance.choice(("DELIVER IN PERSON", "DELIVER IN PERSON", "NONE"))
    mode, flag, status = chance.choice(("AIR", "AIR REG", "MAIL", "SHIP")), chance.choice("RRAN"), chance.choice("FO")
    return (
        part, supplier, quantity, price, discount, tax, flag, status, shipped, promised, received, ship, mode,
        chance.choice(COMMENTS),
    )  # fmt: skip


TPCH: dict[str, Toy] = dict(
    toy("tpch", *columns)
    for columns in (
        (
            "region: r_regionkey long, r_name text, r_comment text",
            range(5),
            lambda chance, key: (REGIONS[key[0]], chance.choice(COMMENTS)),
        ),
        ("nation: n_nationkey long, n_name text, n_regionkey long, n_comment text", range(25), _nation),
        (
            "supplier: s_suppkey long, s_name text, s_address text, s_nationkey long, s_phone text, s_acctbal money,"
            " s_comment text",
            range(1, 21),
            lambda chance, key: (*_party(chance, key, "Supplier"), chance.choice(COMMENTS)),
        ),
        (
            "customer: c_custkey long, c_name text, c_address text, c_nationkey long, c_phone text, c_acctbal money,"
            " c_mktsegment text, c_comment text",
            range(1, 31),
            lambda chance, key: (
                *_party(chance, key, "Customer"),
                chance.choice(SEGMENTS),
                chance.choice(COMMENTS),
            ),
        ),
        (
            "part: p_partkey long, p_name text, p_mfgr text, p_brand text, p_type text, p_size int, p_container text,"
            " p_retailprice money, p_comment text",
            range(1, 41),
            _part,
        ),
        (
            "partsupp: ps_partkey long, ps_suppkey long, ps_availqty int, ps_supplycost money, ps_comment text",
            PAIRS,
            lambda chance, _: (chance.randrange(1, 100), _money(chance, 1, 100), chance.choice(COMMENTS)),
        ),
        (
            "orders: o_orderkey long, o_custkey long, o_orderstatus text, o_totalprice money, o_orderdate date,"
            " o_orderpriority text, o_clerk text, o_shippriority int, o_comment text",
            range(1, 81),
            _order,
        ),
        (
            "lineitem: l_orderkey long, l_linenumber int, l_partkey long, l_suppkey long, l_quantity money,"
            " l_extendedprice money, l_discount money, l_tax money, l_returnflag text, l_linestatus text,"
            " l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct text, l_shipmode text,"
            " l_comment text",
            [(1 + n % 80, 1 + n // 80) for n in range(250)],
            _line,
        ),
    )
)


# ---- the tables of Nexmark at toy size, over two minutes. No two prices, and no two times of bids, are equal


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
