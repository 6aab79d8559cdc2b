"""What the control of connectors does with a worker whose answers are lost, and what it refuses to ask."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import requests
import responses
from sqlalchemy import create_engine

from cdc import ConnectClient, OutboxSource, apply, delete, move
from cdc.errors import ConnectUnavailable, InvalidConnector
from cdc.operating.control import wait_for_worker
from eventstore import Settings
from eventstore.errors import ForeignRecord

URL = "http://connect:8083"


@pytest.fixture
def client() -> Iterator[ConnectClient]:
    with ConnectClient(URL, timeout=1.0, patience=5.0) as client:
        yield client


def test_a_deletion_whose_answer_was_lost_was_one(client: ConnectClient) -> None:
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/connectors", json=["shop"])
        answers.delete(f"{URL}/connectors/shop", body=requests.ConnectionError("reset"))
        gone = {"error_code": 404, "message": "Connector shop not found"}
        answers.delete(f"{URL}/connectors/shop", json=gone, status=404)
        answers.get(f"{URL}/connectors", json=[])
        assert delete(client, "shop")


def test_there_was_none_where_there_was_none(client: ConnectClient) -> None:
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/connectors", json=["other"])
        assert not delete(client, "shop")


def test_a_state_that_is_none_is_refused_before_anybody_is_asked(client: ConnectClient) -> None:
    with pytest.raises(InvalidConnector, match="cannot be brought to 'running'") as refused:
        move(client, "shop", "running")  # type: ignore[arg-type]
    assert "RUNNING, PAUSED, STOPPED" in refused.value.remedy


def test_a_worker_that_is_starting_is_waited_for_longer_than_one_request_is() -> None:
    with responses.RequestsMock() as answers, ConnectClient(URL, patience=0.1) as hasty:
        for _ in range(4):
            answers.get(f"{URL}/health", body=requests.ConnectionError("refused"))
        answers.get(f"{URL}/health", json={"status": "healthy", "message": "Worker has completed startup"})
        wait_for_worker(hasty, timeout=60.0)


def test_the_wait_for_a_worker_ends(client: ConnectClient) -> None:
    began = time.monotonic()
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/health", body=requests.ConnectionError("refused"))
        with pytest.raises(ConnectUnavailable, match="not ready"):
            wait_for_worker(client, timeout=0.3)
    assert time.monotonic() - began < client.patience


def test_an_outbox_is_not_applied_to_a_topic_that_another_store_fills(
    client: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = OutboxSource(
        name="shop", topic_prefix="shop", host="h", port=1, database="d", user="u", password="${env:PASSWORD}"
    )
    asked: list[object] = []

    def refuse(*given: object) -> None:
        asked.extend(given)
        raise ForeignRecord("'order' ends with a record that is no event of this store", remedy="another topic")

    monkeypatch.setattr("cdc.operating.control.require_own_topics", refuse)
    monkeypatch.setattr(OutboxSource, "check_source", lambda self, engine: None)
    settings, source = Settings.for_broker("127.0.0.1:1"), create_engine("sqlite://")
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/health", json={"status": "healthy", "message": "Worker has completed startup"})
        with pytest.raises(ForeignRecord, match="no event of this store"):
            apply(client, outbox, source=source, settings=settings)
        assert {call.request.method for call in answers.calls} == {"GET"}
    assert asked == [settings, outbox, source]
