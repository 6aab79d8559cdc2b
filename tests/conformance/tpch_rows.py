"""The tables of TPC-H at toy size. Few values of each column, for the published parameters are to find rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
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
