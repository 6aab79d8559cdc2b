"""Batches that a client with a limit cannot unpack: small in the topic, large behind its compression."""

from __future__ import annotations

from confluent_kafka import Producer

# What the client takes unpacked, and what of it a record is that grows beyond it.
LIMITED = {"fetch.max.bytes": "1000000", "receive.message.max.bytes": "1100000"}
TOO_LONG = b"a" * 6_000_000


def limited_settings(settings):
    """Settings of a client that unpacks no more than a megabyte; the default is a hundred."""
    kafka = settings.kafka.model_copy(update={"extra_librdkafka": LIMITED})
    return settings.model_copy(update={"kafka": kafka})


def send_packed(settings, topic, values, *, codec, key=b"packed"):
    """Send values to partition 0 in one compressed batch, which `flush` sends and no lapse of time before it."""
    whole = {"linger.ms": 60_000, "batch.size": 100_000_000, "message.max.bytes": 500_000_000}
    options = {"compression.type": codec, **whole}
    producer = Producer({**settings.kafka.librdkafka(), **options})
    for value in values:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(60) == 0
