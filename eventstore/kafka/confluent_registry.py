"""A schema registry that speaks Confluent's REST interface: Confluent's own, Apicurio, Karapace.

A subject is an event's type name, which is the full name of its schema (Confluent calls that RecordNameStrategy). A
topic holds events of several types and a branch repeats them in another topic: by topic, the rule of a subject would
hold `order.shipped` against `order.placed`, and one schema would be registered once for every branch.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from eventstore.closing import Closing
from eventstore.errors import RegistryUnreachable, SchemaError, SchemaIncompatible, UnknownSchema
from eventstore.extras import explained
from eventstore.schema_registry import RegisteredSchema, canonical
from eventstore.settings import RegistrySettings, Settings

try:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
    from httpx2 import HTTPError
except ModuleNotFoundError as error:
    raise explained(error) from error

_INCOMPATIBLE: Final = 409
_NOT_FOUND: Final = 404
_BAD_REQUEST: Final = 400
# A proxy without a registry behind it, or a registry that elects its leader.
_AWAY: Final = frozenset({502, 503, 504})
# Java's registries answer with the names of all classes that the refusal has passed through.
_MESSAGE_LENGTH: Final = 500


class ConfluentRegistry(Closing):
    """A client of a Confluent-compatible schema registry. Close it, or use it in `with`. Safe for threads.

    Raises RegistryUnreachable if the certificates to trust cannot be read.

    Examples:
        >>> with (
        ...     ConfluentRegistry(RegistrySettings(url="https://registry:8081")) as registry,
        ...     SqlEventStore("sqlite:///shop.db", registry=registry) as store,
        ... ):
        ...     store.append("order-o1", [Order.Placed(sku="tea")], expected=ANY)
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._client = _client(settings)

    @property
    def address(self) -> str:
        """The URL, without a user."""
        return self._settings.url

    def register(self, schemas: Sequence[RegisteredSchema]) -> list[RegisteredSchema]:
        """Register schemas under their event types. Return them in their order, with the ids that the registry gave.

        A schema that is registered already gets its id again. Schemas before a refused one stay registered.

        Raises:
            SchemaIncompatible: The registry's rule forbids the schema.
            UnknownSchema: The schema is new, and `auto_register` is off.
            RegistryUnreachable: The registry did not answer. SchemaError: it refused.
        """
        find = self._registered if self._settings.auto_register else self._looked_up
        return [RegisteredSchema(find(s.name, _spelled(s)), s.name, s.schema, self.address) for s in schemas]

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return one schema. Raises UnknownSchema, RegistryUnreachable or SchemaError."""
        with self._asked(f"schema id {schema_id}"):
            return self._read(schema_id, self._client.get_schema(schema_id).schema_str)

    def schemas(self, categories: Iterable[str]) -> list[RegisteredSchema]:
        """Return every version of every event type of some categories, by their ids."""
        selected = set(categories)
        with self._asked("its subjects"):
            subjects = [s for s in self._client.get_subjects() if s.rpartition(".")[0] in selected]
        schemas = [self._version(s, number) for s in subjects for number in self._numbers(s)]
        return sorted(schemas, key=lambda schema: schema.id)

    def schemas_of_topics(self, topics: Iterable[str]) -> list[RegisteredSchema]:
        """Return every version of the schemas of some topics' keys and values, by TopicNameStrategy."""
        names = {f"{topic}-{side}" for topic in topics for side in ("key", "value")}
        with self._asked("its subjects"):
            subjects = sorted(names & set(self._client.get_subjects()))
        return [self._version(s, number) for s in subjects for number in self._numbers(s)]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _registered(self, subject: str, schema: Schema) -> int:
        rule = self._settings.compatibility.get(subject.rpartition(".")[0])
        with self._asked(subject):
            if rule is not None:
                self._client.set_compatibility(subject, rule)
            return self._id(self._client.register_schema_full_response(subject, schema).schema_id)

    def _looked_up(self, subject: str, schema: Schema) -> int:
        with self._asked(subject):
            return self._id(self._client.lookup_schema(subject, schema).schema_id)

    def _numbers(self, subject: str) -> list[int]:
        with self._asked(subject):
            return list(self._client.get_versions(subject))

    def _version(self, subject: str, number: int) -> RegisteredSchema:
        with self._asked(f"{subject}, version {number}"):
            entry = self._client.get_version(subject, number)
            return self._read(self._id(entry.schema_id), None if entry.schema is None else entry.schema.schema_str)

    def _read(self, schema_id: int, text: str | None) -> RegisteredSchema:
        schema = json.loads(text or "")
        return RegisteredSchema(schema_id, f"{schema['namespace']}.{schema['name']}", schema, self.address)

    def _id(self, given: int | None) -> int:
        if type(given) is not int:
            raise ValueError(f"an id that is {given!r}")
        return given

    @contextmanager
    def _asked(self, subject: str) -> Iterator[None]:
        """Turn what goes wrong with the registry into our errors."""
        try:
            yield
        except SchemaRegistryError as error:
            raise self._answer(subject, error) from error
        except HTTPError as error:
            raise self._away(subject, f"{error}") from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._refused(subject, f"what came is no answer of a registry: {error}") from error

    def _answer(self, subject: str, error: SchemaRegistryError) -> SchemaError:
        said = " ".join(str(error.error_message).split())[:_MESSAGE_LENGTH]
        match error.http_status_code:
            case code if code == _INCOMPATIBLE:
                return self._incompatible(subject, said)
            case code if code == _NOT_FOUND and str(error.error_code).startswith("404"):
                return UnknownSchema(
                    f"the registry does not know {subject}: {said}",
                    remedy="register the schemas of the code first: factfold schema register MODULE:NAME",
                    place=self._place(subject),
                )
            case code if code in _AWAY:
                return self._away(subject, f"{code}, {said}")
        refused = self._refused(subject, f"{error.http_status_code}, {said}")
        return self._unreturned(refused) if error.http_status_code == _BAD_REQUEST else refused

    def _incompatible(self, subject: str, said: str) -> SchemaIncompatible:
        return SchemaIncompatible(
            f"the registry refuses the schema of {subject}: {said}",
            remedy="make new fields optional (None by default) and keep the others. Where upcasters read the older "
            "events, give the category the rule NONE, and let `factfold schema check` judge",
            place=self._place(subject),
            subject=subject,
        )

    def _away(self, subject: str, cause: str) -> RegistryUnreachable:
        return RegistryUnreachable(
            f"the schema registry does not answer: {cause}",
            remedy="start it, or correct FACTFOLD_REGISTRY__URL. Known event types do not need it",
            place=self._place(subject),
        )

    def _refused(self, subject: str, cause: str) -> SchemaError:
        return SchemaError(
            f"the schema registry refused: {cause}",
            remedy="check its address, whose path may be /apis/ccompat/v7, and user and password",
            place=self._place(subject),
            code="registry-refused",
        )

    def _unreturned(self, refused: SchemaError) -> SchemaError:
        """Apicurio's answer for a schema that it has taken from a connector, and in which a column's DEFAULT is {}."""
        remedy = "look at what it says; of a captured table, run factfold cdc doctor, which names the column at fault"
        return SchemaError(refused.message, remedy=remedy, place=refused.place, code="registry-refused")

    def _place(self, subject: str) -> str:
        return f"{subject} at {self.address}"


def _client(settings: RegistrySettings) -> SchemaRegistryClient:
    try:
        return SchemaRegistryClient(settings.confluent())
    except OSError as error:  # of ssl, too
        raise RegistryUnreachable(
            f"the schema registry cannot be asked: its certificates cannot be read: {error}",
            remedy="correct FACTFOLD_REGISTRY__CA_LOCATION: a PEM file",
            place=str(settings.ca_location),
        ) from error


def configured_registry(settings: Settings) -> ConfluentRegistry | None:
    """Return the registry that the settings name, None if they name none and ids are fingerprints.

    Examples:
        >>> store = SqlEventStore("sqlite:///shop.db", registry=configured_registry(Settings()))
    """
    return None if settings.registry is None else ConfluentRegistry(settings.registry)


def registered_for(settings: Settings, topics: Collection[str]) -> list[RegisteredSchema]:
    """Return the schemas of topics whose records are Avro; RegistryUnreachable, also where the settings name none."""
    registry = configured_registry(settings)
    if registry is None:
        raise RegistryUnreachable(
            "records are Avro, and the settings name no schema registry",
            remedy="set FACTFOLD_REGISTRY__URL to the registry that the connector's converter uses",
            place=", ".join(topics),
        )
    with registry:
        return registry.schemas_of_topics(topics)


def _spelled(schema: RegisteredSchema) -> Schema:
    return Schema(canonical(schema.schema), "AVRO")
