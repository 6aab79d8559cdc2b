"""`factfold schema asyncapi`: a document whose references lead somewhere, made of what the classes say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from fastavro import parse_schema

from eventstore import Aggregate, RecordedEvent, SqlEventStore, command, event, subscription
from eventstore.aggregates.command_schemas import command_schema
from eventstore.asyncapi import Routed, Service, asyncapi
from eventstore.errors import DeclarationError, FactfoldError
from eventstore.processes import Process, starts
from tests.commands import factfold
from tests.unit.guestbook import Customer, Order, ship

GUESTBOOK = "tests.unit.guestbook"


class Payment(Aggregate):
    """A payment."""

    @event
    class Received:
        """Money has come."""

        amount: int

    @event
    class Refunded:
        amount: int


ROUTED = Routed(
    aggregate=Payment,
    topic="payment",
    topics={"suspicious": "payment.suspicious", "validated": "payment.validated"},
    predicates={"suspicious": "amount > 100"},
    dead_letter_topic="payment.dead-letter",
)


@subscription("payment.suspicious", group="fraud")
def review(event: Payment.Received, tx: sa.Connection) -> None: ...


@subscription(pattern=r"payment\..*", group="audit")
def audit(event: RecordedEvent) -> None: ...


@subscription(["elsewhere.stock", "elsewhere.price"], group="mirror")
def mirror(event: RecordedEvent) -> None: ...


SHOP = Service(
    title="shop",
    aggregates=[Order, Customer, Payment],
    subscriptions=[ship, review, audit, mirror],
    routed=[ROUTED],
    partitions={"order": 3},
    servers=["broker-1:9092"],
)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def resolved(document: Any, reference: str) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        document = document[part]
    return document


def test_every_reference_leads_somewhere() -> None:
    document = asyncapi(SHOP)
    found = list(references(document))
    assert len(found) > 40
    for reference in found:
        assert resolved(document, reference) is not None


def test_the_required_parts_are_those_of_version_three() -> None:
    document = asyncapi(SHOP)
    assert list(document) == [
        "asyncapi", "info", "defaultContentType", "channels", "operations", "components", "servers",
    ]  # fmt: skip
    assert document["asyncapi"] == "3.0.0"
    assert document["servers"] == {"kafka1": {"host": "broker-1:9092", "protocol": "kafka"}}
    for operation in document["operations"].values():
        assert operation["action"] in ("send", "receive")
        channel = resolved(document, operation["channel"]["$ref"])
        for message in operation.get("messages", ()):
            assert message["$ref"].startswith(f"{operation['channel']['$ref']}/messages/")
            assert message["$ref"].rpartition("/")[2] in channel["messages"]


def test_aggregates_send_and_subscriptions_receive_what_they_take() -> None:
    operations = asyncapi(SHOP)["operations"]
    told = {
        name: [one["$ref"].rpartition("/")[2] for one in operation.get("messages", ())]
        for name, operation in operations.items()
    }
    assert told == {
        "send.order": ["order.placed", "order.shipped"],
        "receive.order.commands": ["command.order.place", "command.order.ship"],
        "send.customer": ["customer.registered"],
        "send.payment": ["payment.received", "payment.refunded"],
        "send.payment.suspicious": ["payment.received", "payment.refunded"],
        "send.payment.validated": ["payment.received", "payment.refunded"],
        "receive.shipping.order": ["order.placed"],
        "receive.fraud.payment.suspicious": ["payment.received"],
        "receive.audit.payment.suspicious": ["payment.received", "payment.refunded"],
        "receive.audit.payment.validated": ["payment.received", "payment.refunded"],
        "receive.mirror.elsewhere.stock": [],
        "receive.mirror.elsewhere.price": [],
    }
    assert operations["send.payment.suspicious"]["x-branch"] == "suspicious"
    assert operations["receive.fraud.payment.suspicious"]["bindings"]["kafka"]["groupId"]["enum"] == ["fraud"]


def test_an_event_has_its_avro_schema_and_personal_fields_are_marked() -> None:
    message = asyncapi(SHOP)["components"]["messages"]["customer.registered"]
    payload = message["payload"]
    assert payload["schemaFormat"] == "application/vnd.apache.avro;version=1.9.0"
    fields = {one["name"]: one for one in payload["schema"]["fields"]}
    assert (fields["name"]["x-personal"], "x-personal" in fields["country"]) == (True, False)
    assert message["x-personal"] == ["name"]
    parse_schema(payload["schema"])  # which Avro takes with the mark
    placed = asyncapi(SHOP)["components"]["messages"]["order.placed"]
    assert placed["payload"]["schema"] == json.loads(json.dumps(Order.event_types["order.placed"].schema))
    assert asyncapi(SHOP)["components"]["messages"]["payment.received"]["summary"] == "Money has come."
    assert "summary" not in placed


def test_topics_have_their_keys_partitions_and_headers() -> None:
    document = asyncapi(SHOP)
    assert document["channels"]["order"]["bindings"]["kafka"]["partitions"] == 3
    assert "partitions" not in document["channels"]["payment"]["bindings"]["kafka"]
    message = document["components"]["messages"]["order.placed"]
    assert message["bindings"]["kafka"]["key"]["examples"] == ["order-1@0"]
    headers = resolved(document, message["headers"]["$ref"])
    assert {"ce_id", "ce_type", "ce_subject", "ce_streamversion"} <= set(headers["required"])
    assert set(headers["properties"]) - set(headers["required"]) == {
        "ce_correlationid", "ce_causationid", "traceparent",
    }  # fmt: skip


def test_a_pattern_that_matches_no_topic_here_is_a_channel_without_an_address() -> None:
    document = asyncapi(Service(title="audit", subscriptions=[audit]))
    assert document["channels"]["audit.pattern"]["address"] is None
    assert list(document["operations"]) == ["receive.audit.audit.pattern"]


class Fulfilment(Process, sends=[Order]):
    @starts(Order.Placed)
    def begin(self, event: Order.Placed) -> None:
        self.send(Order.ship, self.id, "Post")


def test_a_process_receives_what_it_reacts_to_and_says_what_it_sends() -> None:
    document = asyncapi(Service(title="shop", source="/shop", aggregates=[Order, Fulfilment]))
    operation = document["operations"]["receive.fulfilment-process.shop.order"]
    assert [one["$ref"].rpartition("/")[2] for one in operation["messages"]] == ["order.placed"]
    assert operation["x-sends"] == ["order.place", "order.ship"]
    assert document["operations"]["send.shop.fulfilment"]["channel"] == {"$ref": "#/channels/shop.fulfilment"}
    for reference in references(document):
        assert resolved(document, reference) is not None


@dataclass
class Address:
    street: str


class Unknowable:
    """A type that no JSON Schema describes."""


class Desk(Aggregate):
    @command
    def accept(
        self, amount: Decimal, to: Address, by: Unknowable, at: NoSuch,  # noqa: F821 - it cannot be found
        note: str = "", *tags: str, **more: int,
    ) -> None:  # fmt: skip
        """Accept an amount.

        And more.
        """


def test_a_command_has_its_arguments_by_their_annotations() -> None:
    message, schemas = command_schema("desk.accept", Desk.accept)
    payload = message["payload"]
    assert (message["summary"], payload["required"]) == ("Accept an amount.", ["amount", "to", "by", "at"])
    assert list(payload["properties"]) == ["amount", "to", "by", "at", "note", "tags"]
    assert payload["properties"]["by"] == {"description": "Unknowable"}
    assert payload["properties"]["at"] == {"description": "NoSuch"}  # the others have their types all the same
    assert payload["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    assert payload["additionalProperties"] == {"type": "integer"}
    assert payload["properties"]["to"]["properties"] == {"street": {"title": "Street", "type": "string"}}
    assert schemas == {}


def test_schemas_that_a_command_refers_to_are_parts_of_the_document() -> None:
    class Box(Aggregate):
        @command
        def fill(self, items: list[Address]) -> None: ...

    document = asyncapi(Service(title="box", aggregates=[Box]))
    (payload,) = [one["payload"] for one in document["components"]["messages"].values()]
    assert resolved(document, payload["properties"]["items"]["items"]["$ref"])["title"] == "Address"


def run(*words: str) -> Any:
    done = factfold("schema", "asyncapi", *words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_a_module_stands_for_all_that_it_has_and_yaml_says_what_json_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FACTFOLD_STORE_URL", raising=False)
    text = run(GUESTBOOK, "--store-source", "/shop")
    found = yaml.safe_load(text)
    assert found == json.loads(run(GUESTBOOK, "--store-source", "/shop", "--json"))
    assert found == json.loads(
        run(*(f"{GUESTBOOK}:{name}" for name in ("Order", "Customer", "ship")), "--store-source", "/shop", "--json")
    )
    assert found["info"]["title"] == "shop"
    assert list(found["channels"]) == ["shop.customer", "shop.order", "order.commands", "order"]


def test_topics_and_partitions_are_those_of_a_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with SqlEventStore(url) as store:
        store.create_tables()
        store.declare_category("order", partitions=7, topic="orders.v1")
    found = json.loads(run(f"{GUESTBOOK}:Order", "--store-url", url, "--json"))
    assert found["channels"]["orders.v1"]["bindings"]["kafka"]["partitions"] == 7


def test_the_branches_of_a_service_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FACTFOLD_STORE_URL", raising=False)
    found = json.loads(run("sample_app.payments", "--json"))
    assert found["operations"]["send.payment.suspicious"]["x-branch-of"] == "payment"
    assert found["channels"]["payment.suspicious"]["messages"]


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("no.such.module", "there is no module 'no.such.module'"),
        ("no.such.module:x", "there is no module 'no.such.module'"),
        (f"{GUESTBOOK}:Decimal", "is a type"),
        ("tests.waiting", "there is nothing to describe"),
        ("eventstore.processes", "there is nothing to describe"),
    ],
)
def test_what_cannot_be_described_is_refused(target: str, cause: str) -> None:
    with pytest.raises(FactfoldError, match=cause) as refused:
        run(target)
    assert refused.value.remedy


def test_a_package_with_a_module_that_cannot_be_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halfshop").mkdir()
    (tmp_path / "halfshop" / "__init__.py").touch()
    (tmp_path / "halfshop" / "views.py").write_text("raise ValueError('boom')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeclarationError, match=r"module halfshop\.views cannot be imported: .*boom"):
        run("halfshop")


def test_two_events_of_one_name_are_refused() -> None:
    class Other(Aggregate, category="order"):
        @event
        class Placed:
            elsewhere: str

    with pytest.raises(DeclarationError, match=r"are named 'order\.placed'"):
        asyncapi(Service(title="shop", aggregates=[Order, Other]))


def test_two_subscriptions_that_would_share_a_group_are_refused() -> None:
    @subscription("payment.suspicious", group="fraud")
    def again(event: Payment.Received) -> None: ...

    with pytest.raises(DeclarationError, match=r"operation 'receive\.fraud\.payment\.suspicious'"):
        asyncapi(Service(title="shop", subscriptions=[review, again]))
