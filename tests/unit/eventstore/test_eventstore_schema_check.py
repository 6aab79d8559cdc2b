"""`schema check` names what the code could not read any more, before it is deployed."""

from __future__ import annotations

import json
from dataclasses import make_dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest

from eventstore import ANY, Aggregate, Digits, MemoryEventStore, Personal, RegistrySettings, SqlEventStore, event
from eventstore.errors import DeclarationError, InvalidEventData, RegistryUnreachable
from eventstore.fields.upcasting import Cast, Default, Drop, Rename
from eventstore.kafka import ConfluentRegistry
from eventstore.schema_check import check_schemas, read_schemas, write_schemas
from factfold.cli.entry import main
from tests.rows import each_row
from tests.shipments import REGISTRY, First, Second, Shipment


class Colour(Enum):
    RED = "red"


def record(name: str, *fields: Any) -> Any:
    return make_dataclass(name, fields, frozen=True)


# The same record as it was and is: by its name.
Place = record("Place", ("street", str), ("number", int | None, None))
NumberedPlace, Street = record("Place", ("street", str), ("number", int)), record("Place", ("street", str))
Point, Other = record("Point", ("x", int)), record("Other", ("other", int))
Tour, NumberedTour = record("Tour", ("stops", list[Street])), record("Tour", ("stops", list[NumberedPlace]))
Painted, PaintedColour = record("Painted", ("colour", str)), record("Painted", ("colour", Colour))


def schemas_of(aggregate: type[Aggregate]) -> list[Any]:
    return [kind.registered for kind in aggregate.event_types.values()]


def box(fields: dict[str, Any], *, upcasters: Any = None, category: str = "box") -> type[Aggregate]:
    made = event(upcasters=upcasters or {})(type("Made", (), {"__annotations__": fields}))
    return type("Box", (Aggregate,), {"Made": made}, category=category)


def problems(written: dict[str, Any], today: dict[str, Any], **options: Any) -> list[tuple[str, str]]:
    found = check_schemas([box(today, **options)], schemas_of(box(written)))
    return [(finding.place, finding.problem) for finding in found.misfits]


def test_upcasters_keep_the_promise_of_every_version() -> None:
    found = check_schemas([Shipment], REGISTRY.values())
    assert found.passed
    assert [schema.name for schema in found.by_function] == ["shipment.paid_and_sent"]
    assert found.new == []


MISSING, NULL = "it has no value there", "it may be null there"
BY_NAME = "its records are distinguished by name on one side, and not on the other"
DIGITS = "it has 14 digits before the point and 4 after it there, 8 and 2 today"


@each_row(
    ("written", "today", "place", "problem"),
    [
        ({}, {"x": int}, "x", MISSING),
        ({"x": str}, {"x": int}, "x", "it is string there, and long today"),
        ({"x": int | None}, {"x": int}, "x", NULL),
        ({"x": int}, {"x": float}, "x", "it is long there, and double today"),
        ({"x": int | str}, {"x": int}, "x", "it is string there, and long today"),
        ({"x": list[str]}, {"x": list[int]}, "x[]", "it is string there, and long today"),
        ({"x": dict[str, int | None]}, {"x": dict[str, int]}, "x{}", NULL),
        ({"x": Place}, {"x": NumberedPlace}, "x.number", NULL),
        ({"a": Place, "x": Place}, {"x": NumberedPlace}, "x.number", NULL),
        ({"x": Street}, {"x": NumberedPlace}, "x.number", MISSING),
        ({"x": Street | None}, {"x": NumberedPlace | None}, "x.number", MISSING),
        ({"x": Annotated[Street, Personal(erased=Street(""))]}, {"x": NumberedPlace}, "x.number", MISSING),
        ({"a": Street, "x": list[Street]}, {"x": list[NumberedPlace]}, "x[].number", MISSING),
        ({"x": dict[str, list[Street]]}, {"x": dict[str, list[NumberedPlace]]}, "x{}[].number", MISSING),
        ({"x": Street | int}, {"x": int | NumberedPlace}, "x.number", MISSING),
        ({"x": Tour}, {"x": NumberedTour}, "x.stops[].number", MISSING),
        ({"x": Street | Point}, {"x": NumberedPlace | Point}, "x.number", MISSING),
        ({"x": Street | Point}, {"x": Point | Other}, "x", "it may be Place there"),
        ({"x": Street}, {"x": Street | Point}, "x", BY_NAME),
        ({"x": Street | Point}, {"x": Street}, "x", BY_NAME),
        ({"x": Decimal}, {"x": Annotated[Decimal, Digits(10, 2)]}, "x", DIGITS),
    ],
)
def test_what_could_not_be_read_is_named(written: Any, today: Any, place: str, problem: str) -> None:
    assert problems(written, today) == [(f"box.made.{place}", problem)]


@each_row(
    ("written", "today"),
    [
        ({"x": int, "gone": str}, {"x": int}),
        ({"x": int}, {"x": int | None}),
        ({"x": int}, {"x": str | int}),
        ({"x": Colour}, {"x": str}),
        ({"x": list[int]}, {"x": list[int | None]}),
        ({"x": Place}, {"a": Place | None, "x": Place}),
        ({"x": NumberedPlace}, {"x": Place}),
        ({"x": Street}, {"x": Place}),
        ({"x": list[Street]}, {"x": list[Place | None]}),
        ({"x": Street | Point}, {"x": Point | Place | None}),
        ({"x": Annotated[Decimal, Digits(10, 2)]}, {"x": Decimal}),
    ],
)
def test_what_can_be_read_passes(written: Any, today: Any) -> None:
    assert [found for found in problems(written, today) if found[0].startswith("box.made.x")] == []


@pytest.mark.parametrize(
    ("written", "today", "value", "path"),
    [
        (Street, NumberedPlace, Street("Main"), "x.number"),
        (list[Street], list[NumberedPlace], [Street("Main")], "x[].number"),
        (dict[str, Street], dict[str, NumberedPlace], {"a": Street("Main")}, "x{}.number"),
        (Tour, NumberedTour, Tour([Street("Main")]), "x.stops[].number"),
        (Street | Point, NumberedPlace | Point, Street("Main"), "x.number"),
        (Painted, PaintedColour, Painted("blue"), "x.colour"),
    ],
)
def test_a_reader_names_the_path_too(written: Any, today: Any, value: Any, path: str) -> None:
    old, new = box({"x": written}), box({"x": today})
    store = MemoryEventStore()
    store.append("box-1", [old.Made(x=value)], expected=ANY)  # type: ignore[attr-defined]
    (recorded,) = store.read_stream("box-1")
    with pytest.raises(InvalidEventData) as refused:
        new.events_of(recorded)
    assert refused.value.place == f"box.made.{path}"


def test_a_list_or_a_dictionary_that_a_default_gives_is_held_by_any() -> None:
    today = {"x": list[Place], "y": dict[str, int], "z": int | None}
    steps = {1: [Default("x", []), Default("y", {}), Default("z", None)]}
    assert problems({}, today, upcasters=steps) == []
    assert problems({}, {"x": int}, upcasters={1: [Default("x", [])]}) == [
        ("box.made.x", "it is array there, and long today")
    ]


def test_what_an_erased_person_shows_must_be_cast_too_unless_the_field_is_personal_today() -> None:
    written, steps = {"x": Annotated[str, Personal(erased="")]}, {1: [Cast("x", int)]}
    assert problems(written, {"x": Annotated[int, Personal(erased=0)]}, upcasters=steps) == []
    ((place, problem),) = problems(written, {"x": int}, upcasters=steps)
    assert (place, problem.partition(":")[0]) == ("box.made.x", "once its person is erased, field x cannot be cast")


def test_an_upcaster_mends_what_would_break_and_a_wrong_one_is_named() -> None:
    steps = {1: [Rename("old", to="x"), Cast("x", int), Default("y", 1), Drop("z")]}
    assert problems({"old": str, "z": bytes}, {"x": int, "y": int}, upcasters=steps) == []
    assert problems({"old": bytes}, {"x": int}, upcasters={1: [Rename("old", to="x"), Cast("x", int)]}) == [
        ("box.made.x", "field x cannot be cast from bytes to long")
    ]


def test_a_cast_is_the_remedy_where_there_is_one() -> None:
    (castable,) = check_schemas([box({"x": int})], schemas_of(box({"x": str}))).misfits
    (other,) = check_schemas([box({"x": int})], schemas_of(box({"x": bytes}))).misfits
    assert castable.remedy == 'Cast("x", …)'
    assert "by a function" in other.remedy


def test_a_type_without_a_class_is_named_and_other_categories_are_not_ours() -> None:
    kept = [*schemas_of(First), *schemas_of(box({}, category="other"))]
    found = check_schemas([Second], kept)
    places = {finding.place: finding.problem for finding in found.misfits}
    assert places == dict.fromkeys(["shipment.paid_and_sent", "shipment.gone"], "no class claims the type")
    assert found.passed_over == ["other"]


def test_what_newer_code_wrote_is_named() -> None:
    (finding,) = [f for f in check_schemas([First], schemas_of(Second)).misfits if f.place == "shipment.ordered"]
    assert finding.problem == "written in version 2, and the code knows versions up to 1"


def test_a_file_keeps_every_schema_it_ever_had(tmp_path: Path) -> None:
    file = tmp_path / "schemas.json"
    assert write_schemas(file, [First]) == 3
    assert write_schemas(file, [First]) == 0
    assert write_schemas(file, [Second]) == 1
    assert {schema.id for schema in read_schemas(file)} == {s.id for s in [*schemas_of(First), *schemas_of(Second)]}


@pytest.mark.parametrize("text", ["", "{}", '[{"id": 1}]', "[1]"])
def test_a_file_that_holds_no_schemas_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "schemas.json").write_text(text)
    with pytest.raises(DeclarationError, match="holds no schemas"):
        read_schemas(tmp_path / "schemas.json")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["factfold", "schema", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_command_writes_and_checks_a_file(tmp_path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "write", "tests.shipments:First") == 0
    assert run(monkeypatch, "check", "tests.shipments:Shipment") == 0
    assert "every event can be read" in capsys.readouterr().out
    assert run(monkeypatch, "check", "tests.shipments:Second", "--json") == 3
    facts = json.loads(capsys.readouterr().out)
    assert [finding["place"] for finding in facts["misfits"]] == ["shipment.gone", "shipment.paid_and_sent"]


def test_the_command_checks_a_store(tmp_path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    url = f"sqlite:///{tmp_path}/shop.db"
    with SqlEventStore(url) as store:
        store.create_tables()
        store.register(First)
    assert run(monkeypatch, "check", "tests.shipments:Shipment", "--store-url", url) == 0
    assert run(monkeypatch, "check", "tests.shipments:Second", "--store-url", url) == 3
    assert "broken: shipment.gone" in capsys.readouterr().out


def test_what_was_never_committed_passes_unless_it_must_not(tmp_path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "write", "tests.shipments:First") == 0
    assert run(monkeypatch, "check", "tests.shipments:Shipment") == 0
    capsys.readouterr()
    assert run(monkeypatch, "check", "tests.shipments:Shipment", "--strict") == 3
    told = capsys.readouterr().out
    assert "new: shipment.ordered, version 3" in told
    assert told.endswith("not stored yet: add them by `factfold schema write`, and commit the file\n")
    assert run(monkeypatch, "check", "tests.shipments:Shipment", "--strict", "--json") == 3
    facts = json.loads(capsys.readouterr().out)
    assert (facts["passed"], facts["misfits"], "shipment.ordered" in facts["new"]) == (False, [], True)
    assert run(monkeypatch, "write", "tests.shipments:Shipment") == 0
    assert run(monkeypatch, "check", "tests.shipments:Shipment", "--strict") == 0


def test_categories_that_were_not_looked_at_are_named(tmp_path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    write_schemas(Path("schemas.json"), [First, box({"x": int}), box({"x": int}, category="crate")])
    assert run(monkeypatch, "check", "tests.shipments:First") == 0
    told = capsys.readouterr().out
    assert "not checked: category box, of which no aggregate was named\n" in told
    assert run(monkeypatch, "check", "tests.shipments:First", "--json", "--strict") == 0
    assert json.loads(capsys.readouterr().out)["passed_over"] == ["box", "crate"]


def test_the_command_refuses_what_is_no_aggregate(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    assert run(monkeypatch, "check", "tests.shipments:REGISTRY") == 1
    assert run(monkeypatch, "check", "pathlib:Path") == 1
    assert "is no aggregate" in capsys.readouterr().err


def test_the_command_wants_to_know_which_registry(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    assert run(monkeypatch, "register", "tests.shipments:First") == 1
    assert "FACTFOLD_REGISTRY__URL" in capsys.readouterr().err


def test_the_command_takes_the_user_of_the_environment_to_the_registry_it_is_given(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("FACTFOLD_REGISTRY__URL", "http://elsewhere:1")
    monkeypatch.setenv("FACTFOLD_REGISTRY__USER", "ada")
    monkeypatch.setenv("FACTFOLD_REGISTRY__PASSWORD", "sentinel")
    opened: list[RegistrySettings] = []

    def registry(settings: RegistrySettings) -> ConfluentRegistry:
        opened.append(settings)
        raise RegistryUnreachable("away", remedy="start it")

    monkeypatch.setattr("eventstore.kafka.confluent_registry.ConfluentRegistry", registry)
    assert run(monkeypatch, "register", "tests.shipments:First", "--registry-url", "http://here:1") == 1
    ((url, user),) = [(found.url, found.user) for found in opened]
    assert (url, user) == ("http://here:1", "ada")


def test_a_store_of_the_settings_is_asked_only_if_it_is_chosen(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    url, file = f"sqlite:///{tmp_path}/shop.db", ["--file", f"{tmp_path}/schemas.json"]
    with SqlEventStore(url) as store:
        store.create_tables()
        store.register(First)
    monkeypatch.setenv("FACTFOLD_STORE_URL", url)
    assert run(monkeypatch, "write", "tests.shipments:Second", *file) == 0
    assert run(monkeypatch, "check", "tests.shipments:Second", *file) == 0
    assert run(monkeypatch, "check", "tests.shipments:Second", *file, "--against", "store") == 3
