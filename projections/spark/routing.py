"""The routing query: records of an event topic into its branch topics, Kafka to Kafka, native expressions only.

A record keeps key, value, headers and partition, and gets one header: its branch. Dead letters are one more value of
the ``topic`` column: they leave in the same query, with headers that name the error. Only an unregistered schema id
fails the query. The router then reads the registry again, or gives the id up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from eventstore.schema_registry import RegisteredSchema
from eventstore.topics import BRANCH_HEADER, DEAD_LETTER_PREFIX, DEAD_LETTERS, MAX_ROUTED_BYTES
from projections.declaring.branches import Branches
from projections.errors import InvalidPredicate, ProjectionError
from projections.faults import MESSAGES
from projections.spark.events.decode import Decoder, column_of
from projections.spark.failures import described, refuse, translate
from projections.spark.views.conditions import condition

Mode = Literal["real-time", "micro-batch"]
Start = Literal["beginning", "end"]

# The names of the errors that plain Python raises for the same records.
_ERRORS: Final[Mapping[str, str]] = {
    "not_avro": "NotFramedAvro", "bad_avro": "NotFramedAvro", "bad_cast": "InvalidEventData",
    "field_missing": "InvalidEventData",
    "other_source": "ForeignRecord", "unknown_schema": "UnknownSchema",
    "unknown_type": "UnknownEventType", "invalid_predicate": "InvalidPredicate",
}  # fmt: skip
_MESSAGES: Final[Mapping[str, str]] = {
    **MESSAGES,
    "unknown_schema": "no schema is registered under id {detail}",
    "unknown_type": "the record is an event that the aggregate of these branches does not declare: {detail}",
    "invalid_predicate": "a predicate cannot be put to the record: {detail}",
}
_SINK: Final = {
    "kafka.linger.ms": "0",
    "kafka.max.request.size": str(MAX_ROUTED_BYTES),
    # A deleted topic is an error after this long, instead of after a minute.
    "kafka.max.block.ms": "15000",
}
_SOURCE: Final = {
    "includeHeaders": "true",
    "failOnDataLoss": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "10",
}


@dataclass(frozen=True)
class Routing:
    """Branches with the schemas known at the moment.

    An unregistered schema id is a dead letter where it is one of those ``given_up``, or its record lies below the
    offset that ``settled`` has for its partition: the registry was read again after those records had come.
    """

    branches: Branches
    registry: Mapping[int, RegisteredSchema]
    given_up: Collection[int] = ()
    settled: Mapping[int, int] = field(default_factory=dict)

    def routed(self, records: DataFrame) -> DataFrame:
        """The records as Kafka's sink takes them: key, value, headers, partition, topic.

        ``records`` are a Kafka source's with headers. One without a value deletes an event of a deleted stream: it goes
        nowhere, since a branch is not compacted and keeps what it was given.
        """
        kinds, source = self.branches.aggregate.event_types.values(), self.branches.source
        decoder = Decoder.of(kinds, self.registry, source=source)
        columns = ["topic", "partition", "offset", "key", "value", "headers"]
        judged = decoder.judged(good=self._branch, fault=self._fault)
        outcome = decoder.unless_foreign(judged, fault=_fault).alias("_outcome")
        branch = F.coalesce(F.col("_outcome.branch"), F.lit(DEAD_LETTERS))
        own = F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))
        dead = F.concat(_without_death(own), _dead_letter_headers())
        headers = F.when(F.col("_outcome.branch").isNull(), dead).otherwise(F.concat(own, _branch_header()))
        raw = records.where("value IS NOT NULL").withColumns({} if source is None else {"ce_source": _source()})
        parse, today = decoder.parsing(), decoder.today([*columns, *decoder.judged_by])
        return (
            today(parse(raw.select(*columns, *decoder.foreign())))
            .select(*columns, outcome)
            .select(
                "key", "value", headers.alias("headers"), "partition",
                F.concat(F.lit(f"{self.branches.topic}."), branch).alias("topic"),
            )
        )  # fmt: skip

    def _branch(self, schema: RegisteredSchema) -> Column:
        try:
            self.branches.require_comparable(schema)
        except InvalidPredicate as error:
            return _fault("invalid_predicate", F.lit(f"{error.place}: {error.message}"))
        record = F.col(column_of(schema))
        choice = F.when(F.lit(False), F.lit(self.branches.otherwise))
        for name, predicate in self.branches.predicates.items():
            choice = choice.when(condition(predicate, schema, record), F.lit(name))
        return _outcome(choice.otherwise(F.lit(self.branches.otherwise)))

    def _fault(self, kind: str, *details: Column) -> Column:
        if kind != "unknown_schema":
            return _fault(kind, *details)
        (schema_id,) = details
        named = F.try_element_at(self._undeclared(), schema_id)
        given_up = schema_id.isin([str(known) for known in self.given_up]) | self._is_settled()
        settled = F.when(given_up, _fault(kind, schema_id)).otherwise(refuse(kind, schema_id))
        return F.when(named.isNotNull(), _fault("unknown_type", named)).otherwise(settled)

    def _undeclared(self) -> Column:
        """The registered schemas of events that the aggregate does not declare: name by id, as texts."""
        declared = self.branches.aggregate.stored_types()
        others = [schema for schema in self.registry.values() if schema.name not in declared]
        pairs = [F.lit(text) for schema in others for text in (str(schema.id), schema.name)]
        return F.create_map(*pairs).cast("map<string,string>")

    def _is_settled(self) -> Column:
        choice = F.when(F.lit(False), F.lit(False))
        for partition, offset in self.settled.items():
            choice = choice.when(F.col("partition") == partition, F.col("offset") < offset)
        return choice.otherwise(F.lit(False))


def _source() -> Column:
    """The first header that names a record's source, as text."""
    named = F.filter("headers", lambda header: header["key"] == "ce_source")
    return F.try_element_at(named, F.lit(1))["value"].cast("string")


def _outcome(branch: Column | None = None, error: Column | None = None, message: Column | None = None) -> Column:
    parts = {"branch": branch, "error": error, "message": message}
    nothing = F.lit(None).cast("string")
    return F.struct(*((nothing if part is None else part).alias(name) for name, part in parts.items()))


def _fault(kind: str, *details: Column) -> Column:
    before, _, after = _MESSAGES[kind].partition("{detail}")
    message = F.concat(F.lit(before), *details, F.lit(after)) if details else F.lit(before)
    return _outcome(error=F.lit(_ERRORS[kind]), message=message)


def _without_death(headers: Column) -> Column:
    """A dead letter that was replayed and failed again has the headers of its last failure only."""
    return F.filter(headers, lambda header: ~header["key"].startswith(DEAD_LETTER_PREFIX))


def _branch_header() -> Column:
    return F.array(_header(BRANCH_HEADER, F.col("_outcome.branch")))


def _dead_letter_headers() -> Column:
    values = {
        "topic": F.col("topic"), "partition": F.col("partition"), "offset": F.col("offset"),
        "error": F.col("_outcome.error"), "message": F.col("_outcome.message"), "attempts": F.lit(1),
        # Spark's own clock functions give the start of the batch, which is long ago in real-time mode.
        "time": F.java_method(F.lit("java.time.Instant"), F.lit("now")),
    }  # fmt: skip
    return F.array(*(_header(f"{DEAD_LETTER_PREFIX}{name}", value) for name, value in values.items()))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


@dataclass(frozen=True)
class QueryPlace:
    """Where a routing query reads, remembers and writes; ``client`` is the JVM spelling of the Kafka settings."""

    client: Mapping[str, str]
    spark_checkpoint: Path
    start: Start
    mode: Mode
    batch_seconds: int

    @property
    def _options(self) -> dict[str, str]:
        return {f"kafka.{name}": value for name, value in self.client.items()}

    def records(self, spark: SparkSession, topic: str) -> DataFrame:
        """The source's records, committed ones only; ``start`` counts where there is no Spark checkpoint yet."""
        first = {"beginning": "earliest", "end": "latest"}[self.start]
        options = {**self._options, **_SOURCE, "subscribe": topic, "startingOffsets": first}
        if self.mode == "micro-batch":
            options["maxOffsetsPerTrigger"] = "100000"  # some seconds of work, so that a kill repeats little
        return spark.readStream.format("kafka").options(**options).load()

    def start_query(self, routed: DataFrame) -> StreamingQuery:
        """Start writing what ``Routing.routed`` gives; each record goes where its columns say."""
        options = {**self._options, **_SINK, "includeHeaders": "true", "checkpointLocation": str(self.spark_checkpoint)}
        writer = routed.writeStream.format("kafka").options(**options)
        if self.mode == "real-time":
            trigger: Any = writer.outputMode("update").trigger  # its types do not know real time yet
            return cast("StreamingQuery", trigger(realTime=f"{self.batch_seconds} seconds").start())
        return writer.outputMode("append").trigger(processingTime="0 seconds").start()


class RoutingQuery:
    """A running routing query, its failures typed."""

    def __init__(self, spark: SparkSession, routing: Routing, place: QueryPlace) -> None:
        self._place = f"branches of {routing.branches.topic}"
        with described(self._place):
            self._query = place.start_query(routing.routed(place.records(spark, routing.branches.topic)))

    def failure(self) -> ProjectionError | None:
        """What ended the query, or None while it runs."""
        with described(self._place):
            if self._query.isActive:
                return None
            raised = self._query.exception()
        return translate(str(raised) if raised else "the query ended by itself", self._place)

    def last_batch(self) -> int:
        """The number of the batch it has committed last, or -1; counted from the first start on."""
        with described(self._place):
            last = self._query.lastProgress
        return -1 if last is None else int(last["batchId"])

    def stop(self) -> None:
        """End it; the current batch is not committed, and its records are routed again."""
        with described(self._place):
            self._query.stop()
