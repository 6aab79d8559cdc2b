"""T13 for cdc: passwords in every setting that takes one, every way to fail, at debug level; none is found anywhere."""

from __future__ import annotations

import base64
import json
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from pydantic import SecretStr
from sqlalchemy import create_engine
from typer.testing import CliRunner

import cdc
from cdc import ConnectClient, Supervisor
from cdc.source.grants import check_source
from eventstore import Restarts
from factfold.cli.cdc import operate as cdc_operate
from tests.connectors import heartbeats, rest
from tests.waiting import wait_until

if TYPE_CHECKING:
    from factfold.stack import LocalStack

# Every secret of this file begins so, and says where it stands.
SENTINEL = "s3nt1nel"
# What a secret becomes on its way: in an Authorization header.
AUTHORIZATION = base64.b64encode(f"ann:{SENTINEL}-auth".encode()).decode()
NOISY = ("io.debezium", "org.apache.kafka.connect")


def leaks(text: str) -> list[str]:
    """Return the lines that tell a secret."""
    return [line for line in text.splitlines() if SENTINEL in line or AUTHORIZATION in line]


@dataclass
class Overheard:
    """All that was said: by errors, logs, commands, the worker; each under the name of who said it."""

    said: list[tuple[str, str]] = field(default_factory=list)

    def fails(self, who: str, call: Callable[[], Any]) -> None:
        """Run what has to fail, and keep all that its error can show, with its causes and contexts."""
        try:
            self.says(who, call())
        except Exception as error:
            told = "".join(traceback.format_exception(error))
            self.said.append((who, "\n".join([told, str(vars(error)), *(f"{one} {one!r}" for one in _chain(error))])))
        else:
            raise AssertionError(f"{who} did not fail")

    def says(self, who: str, what: Any) -> None:
        """Keep a value as it prints."""
        self.said.append((who, f"{what}\n{what!r}"))

    @property
    def leaks(self) -> list[tuple[str, list[str]]]:
        """Who told a secret, and in which lines."""
        return [(who, found) for who, text in self.said if (found := leaks(text))]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.fixture
def overheard(capfd: pytest.CaptureFixture[str]) -> Iterator[Overheard]:
    """Every logger of Python and structlog speaks at debug level, to whoever listens."""
    heard, records = Overheard(), []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(logging.Formatter().format(record))

    listener, root = Listener(), logging.getLogger()
    level = root.level
    root.addHandler(listener)
    root.setLevel(logging.DEBUG)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    logging.getLogger("cdc").debug("listening")
    yield heard
    root.setLevel(level)
    root.removeHandler(listener)
    structlog.reset_defaults()
    heard.said += [("python's logs", "\n".join(records)), ("the terminal", "".join(capfd.readouterr()))]
    assert "listening" in records
    assert heard.leaks == []


@pytest.fixture(scope="module")
def shop(captured: Callable[[], Any]) -> Any:
    shop = captured()
    shop.password = f"{SENTINEL}-role"
    shop.run("CREATE TABLE items (id int PRIMARY KEY, name text)")
    return shop


@pytest.fixture
def declared(shop: Any) -> Callable[..., Any]:
    return lambda **changes: shop.source(**{"tables": ("public.items",), **changes})


def with_secrets(stack: LocalStack, **changes: Any) -> ConnectClient:
    """A client whose password and headers are secret."""
    words: dict[str, Any] = {"patience": 0.2, "headers": {"X-Api-Key": f"{SENTINEL}-header"}, **changes}
    return ConnectClient(**{"url": stack.info.connect_url, "auth": ("ann", SecretStr(f"{SENTINEL}-auth")), **words})


@pytest.mark.usefixtures("connect")
def test_a_worker_that_cannot_be_asked_tells_no_secret(overheard, stack):
    secret = f"{SENTINEL}-url"
    for url in (
        f"http://ann:{secret}@127.0.0.1:9",
        f"http://ann:{secret}@127.0.0.1:port",
        f"ftp://ann:{secret}@127.0.0.1",
        f"http://ann:{secret}@",
        f"http://ann:{secret}#@127.0.0.1:9",
        f"http://ann:{secret}/@127.0.0.1:9",
        f"http://:{secret}@127.0.0.1:9",
    ):
        overheard.fails(f"a client of {url}", lambda url=url: asked(ConnectClient(url, patience=0.1)))
    overheard.fails("a header", lambda: asked(with_secrets(stack, headers={"X-Api-Key": f"{SENTINEL}\n"})))
    overheard.fails("a header's name", lambda: asked(with_secrets(stack, headers={f"{SENTINEL}\n": "x"})))
    overheard.fails("no worker", lambda: asked(with_secrets(stack, url="http://127.0.0.1:9")))
    overheard.fails("a worker of another kind", lambda: asked(with_secrets(stack, url=f"http://{address_of(stack)}")))
    with with_secrets(stack) as client:
        overheard.says("a client", client)
        overheard.says("its health", client.health())
        overheard.fails("an unknown connector", lambda: client.status("nobody"))
        overheard.fails("a refused configuration", lambda: client.create("x", {"connector.class": "no.such"}))


def address_of(stack: LocalStack) -> str:
    return f"{stack.info.postgres.host}:{stack.info.postgres.port}"


def asked(client: ConnectClient) -> None:
    with client:
        client.version()


def test_a_source_that_refuses_tells_no_secret(overheard, shop, declared):
    url, secret = shop.engine.url, f"{SENTINEL}-source"
    nobody, stranger = create_engine(url.set(port=9, password=secret)), create_engine(url.set(password=secret))
    for engine in (nobody, stranger):
        overheard.says("an engine", engine)
        overheard.fails("a check", lambda engine=engine: check_source(engine, declared()))
        overheard.fails("a preparation", lambda engine=engine: cdc.prepare_source(engine, declared(), password=secret))
        overheard.fails("a slot", lambda engine=engine: cdc.drop_slot(engine, "x"))
        overheard.says("findings", cdc.diagnose_connector(declared(), source=engine))
    missing = declared(tables=("public.gone",))
    overheard.fails("a table", lambda: cdc.prepare_source(shop.engine, missing, password=secret))
    overheard.says("grants", cdc.grant_statements(declared()))
    for wrong in ({"a b": secret}, {"": secret}):
        overheard.fails(
            "a secret's name", lambda wrong=wrong: cdc.write_secrets(shop.stack.info.folder, "x", values=wrong)
        )


def set_level(client: ConnectClient, logger: str, level: str) -> Any:
    return rest(client, "PUT", f"/admin/loggers/{logger}", json={"level": level})


@pytest.fixture
def worker_s_log(stack: LocalStack, connect: ConnectClient) -> Iterator[Callable[[], str]]:
    """What the worker and the database write from now on, the worker at debug level."""
    logs = [stack.info.log("connect"), stack.info.log("postgres")]
    starts = [log.stat().st_size for log in logs]
    levels = {name: set_level(connect, name, "DEBUG") for name in NOISY}
    assert all(levels.values())
    yield lambda: "".join(read_from(log, start) for log, start in zip(logs, starts, strict=True))
    for name in NOISY:
        set_level(connect, name, "INFO")


def read_from(log: Any, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")


def rest_answers(client: ConnectClient, name: str, config: dict[str, str]) -> str:
    answers = [
        client.overview(), client.config(name), client.offsets(name), client.status(name),
        client.validate({"name": name, **config}),
        *(rest(client, "GET", f"/connectors/{name}/{part}") for part in ("tasks", "topics")),
    ]  # fmt: skip
    return repr(answers)


def test_a_connector_s_whole_life_tells_no_secret(overheard, stack, shop, declared, worker_s_log, monkeypatch):
    declarations = type(sys)("secretly_here")
    declarations.source = source = shop.prepared(declared())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "secretly_here", declarations)
    monkeypatch.setenv("FACTFOLD_CONNECT_URL", stack.info.connect_url.replace("//", f"//ann:{SENTINEL}-auth@"))
    monkeypatch.setenv("FACTFOLD_SOURCE_URL", shop.engine.url.render_as_string(hide_password=False))

    def runs(*words: str, code: int = 0) -> None:
        result = CliRunner().invoke(cdc_operate.app, words)
        overheard.says(" ".join(words), result.output)
        if result.exception is not None:
            overheard.said.append((" ".join(words), "".join(traceback.format_exception(result.exception))))
        assert result.exit_code == code, result.output

    with with_secrets(stack, patience=30.0) as client:
        wrong = declared(password=secrets_of(shop, "wrong", f"{SENTINEL}-wrong"))
        overheard.fails("a wrong password", lambda: cdc.apply_connector(client, wrong, source=shop.engine))
        overheard.says("findings", cdc.diagnose_connector(wrong, source=shop.engine, client=client))
        runs("plan", "secretly_here:source", code=3)
        runs("apply", "secretly_here:source", "--json")
        overheard.says("answers", rest_answers(client, shop.name, source.config()))
        for words in (
            "status",
            f"status {shop.name} --json",
            "doctor secretly_here:source",
            "grants secretly_here:source",
        ):
            runs(*words.split())
        runs("doctor", "secretly_here:source", "--json")
        overheard.fails(
            "a rotation",
            lambda: cdc.rotate_password(
                client, source, source=shop.engine, password=f"{SENTINEL}-unwritten", write=lambda secret: None
            ),
        )
        overheard.says("rotated", cdc.rotate_password(client, source, source=shop.engine, password=f"{SENTINEL}-new"))
        shop.run(f"DROP PUBLICATION {source.publication}")
        overheard.fails("a restart", lambda: cdc.restart_connector(client, shop.name, source=shop.engine))
        policy = Restarts(limit=1, first=0.1)
        supervisor = Supervisor(client, [shop.name], policy=policy, poll=0.1)
        overheard.fails("supervision", lambda: supervisor.run(threading.Event()))
        runs("status", "--json", code=3)
        runs("doctor", "secretly_here:source", code=3)
        overheard.says("answers", rest_answers(client, shop.name, source.config()))
        cdc.delete_connector(client, shop.name, forget=True)
    written = worker_s_log()
    assert written.count(" DEBUG ") > 100
    overheard.said.append(("the servers' logs", written))


def secrets_of(shop: Any, name: str, secret: str) -> str:
    return cdc.write_secrets(shop.stack.info.secrets_dir, f"{shop.name}-{name}", values={"password": secret})[
        "password"
    ]


@pytest.mark.usefixtures("connect")
def test_a_url_that_is_none_tells_no_secret(overheard, stack):
    for url in (f"{SENTINEL}", f"postgresql://ann:{SENTINEL}@host:port/db", f"nothing+at+all://ann:{SENTINEL}@host/db"):
        words = ["status", "--connect-url", stack.info.connect_url, "--source-url", url]
        overheard.fails(
            url[:10], lambda words=words: CliRunner().invoke(cdc_operate.app, words, catch_exceptions=False)
        )


def test_a_literal_that_was_asked_for_is_shown_by_connect_and_masked_by_us(overheard, connect, shop, stack):
    @dataclass
    class Hearts:
        name: str
        interval: int

        def config(self) -> dict[str, str]:
            secret = {"header.password": f"{SENTINEL}-asked-{self.interval}"}
            return {**heartbeats(stack.info.bootstrap_servers), **secret}

    name = f"{shop.name}-hearts"
    connect.create(name, Hearts(name, 1).config(), state="STOPPED")
    # Where the user put it, it is: the search would find it elsewhere too.
    assert leaks(json.dumps(connect.config(name)))
    wait_until(lambda: any(one.status.name == name for one in cdc.connector_health(connect)), what="its status")
    plans = [one for one in cdc.plan_connectors(connect, [Hearts(name, 2)]) if one.name == name]  # type: ignore[list-item]
    assert [change.key for change in plans[0].changes] == ["header.password"]
    overheard.says("a plan", plans)
    overheard.says("findings", cdc.diagnose_connector(Hearts(name, 2), client=connect))  # type: ignore[arg-type]
    overheard.says("health", [*cdc.connector_health(connect, name)])
    cdc.delete_connector(connect, name, forget=True)
