"""Processes under an operator's hands: what is stuck is listed, and repaired without a loss; on both databases."""

from __future__ import annotations

import threading
from datetime import timedelta
from decimal import Decimal

import pytest
from structlog.testing import capture_logs

from eventstore import Aggregate, SqlEventStore, command, event
from eventstore.errors import InvalidEventData, InvalidIdentifier, SubscriptionError
from eventstore.processes import Process, reacts, starts, times_out
from eventstore.processes.errors import ProcessError, ProcessStuck, ProcessVersionMissing, StepFailed
from eventstore.scheduling import Schedule
from tests.conformance.process_shop import NOON, Exploding, Former, NewerAlone, Shop, explode
from tests.errors import raises
from tests.unit.eventstore.fulfilment import Fulfilment, Item, Order, Payment

pytestmark = pytest.mark.postgres_in_faults

AGES = timedelta(days=9)


class Parcel(Aggregate):
    mood = "fine"
    asleep = threading.Event()

    @event
    class Sent:
        pass

    @command
    def dispatch(self) -> None:
        if self.mood == "broken":
            raise ZeroDivisionError
        if self.mood == "shut":
            self.refuse("the gate is shut")
        if self.mood == "hangs":
            self.asleep.wait(20)
        self.emit(self.Sent())


@pytest.fixture(autouse=True)
def mood():
    Parcel.mood, Parcel.asleep = "fine", threading.Event()
    yield Parcel
    Parcel.asleep.set()


class Sender(Process, sends=[Parcel]):
    @starts(Order.Placed)
    def placed(self) -> None:
        self.send(self.id, Parcel.dispatch)
        self.done()


def sent(shop, mood):
    """Let a process end with a command that goes wrong."""
    Parcel.mood = mood
    shop.place("o1")
    shop.deliver()
    worker = shop.worker()
    for _ in range(8):
        worker.run_once()
        shop.pass_time(minutes=30)


@pytest.mark.both_databases
def test_a_command_of_an_ended_process_that_was_set_aside_is_stuck_and_retried(shops):
    shop = shops(Sender)
    sent(shop, "broken")
    (stuck,) = shop.processes.instances(stuck=AGES)
    assert (stuck.status, stuck.problem) == ("done", "parcel.dispatch was set aside: ZeroDivisionError")
    assert stuck.waits_for == "command parcel.dispatch, which was set aside"
    schedule = Schedule(shop.store)
    assert [one.key for one in schedule.pending(failed=True, processes=True)] == [("sender", "o1")]
    assert schedule.pending() == []
    Parcel.mood = "fine"
    shop.processes.retry(Sender, "o1")
    shop.worker().drain()
    assert shop.types("parcel-o1") == ["parcel.sent"]
    assert shop.processes.instances(stuck=AGES) == []


def test_a_last_command_that_was_refused_is_a_problem_although_the_process_has_ended(shops):
    shop = shops(Sender)
    sent(shop, "shut")
    (stuck,) = shop.processes.instances(stuck=AGES)
    assert (stuck.status, stuck.problem) == ("done", "parcel.dispatch was refused: the gate is shut")
    shop.processes.retry("sender", "o1")
    assert shop.processes.instances(stuck=AGES) == []


def test_a_retry_of_what_has_no_problem_is_refused_and_takes_no_step(shops):
    shop = shops(Sender)
    shop.place("o1")
    shop.work()
    steps = len(shop.processes.steps("sender", "o1"))
    with pytest.raises(ProcessError, match="sender 'o1' has nothing to repeat: it is done without a problem"):
        shop.processes.retry("sender", "o1")
    assert len(shop.processes.steps("sender", "o1")) == steps


def test_a_wrong_name_of_a_process_or_an_instance_is_refused(shops):
    processes = shops(Sender).processes
    for wrong in [("Sender 1", "o1"), (None, "o1"), (5, "o1"), ("sender", ""), ("sender", None)]:
        for act in [processes.show, processes.steps, processes.retry, processes.cancel, processes.migrate]:
            with pytest.raises(InvalidIdentifier):
                act(*wrong)
    with raises(ProcessError, code="process-unknown", match="no process 'other' was given") as raised:
        processes._kind("other")
    assert raised.value.remedy == "give its class: Processes(store, [Shipping]), or module:Shipping to a command"


@pytest.mark.both_databases
def test_a_last_command_that_no_worker_sends_is_stuck(shops):
    shop = shops(Sender)
    shop.place("o1")
    shop.deliver()
    shop.pass_time(hours=2)
    assert shop.processes.instances(stuck=timedelta(hours=3)) == []
    (stuck,) = shop.processes.instances(stuck=timedelta(hours=1))
    assert stuck.waits_for == "command parcel.dispatch, due now"


@pytest.mark.both_databases
def test_instances_that_wait_for_a_timer_take_no_place_in_the_list_of_stuck_ones(shop):
    shop.stock(9)
    shop.place("o1", "o2", "o3")
    shop.work()
    shop.pass_time(minutes=20)
    shop.pay("early")
    shop.deliver()
    shop.pass_time(minutes=5)
    (stuck,) = shop.processes.instances(stuck=timedelta(minutes=1), limit=1)
    assert (stuck.instance, stuck.waits_for) == ("early", "the event that starts it")


def test_a_cancellation_while_it_compensates_withdraws_no_compensation(shop):
    shop.begin(stock=5)
    shop.work()
    shop.processes.cancel("fulfilment", "o1")
    with pytest.raises(ProcessError, match="fulfilment 'o1' is compensating already"):
        shop.processes.cancel("fulfilment", "o1")
    shop.worker().drain()
    assert shop.types("item-tea")[-1] == "item.released"
    assert shop.status("o1") == "compensated"


def test_an_instance_whose_code_is_missing_says_so_and_loses_nothing_when_it_is_moved(shops):
    first = shops(Former)
    first.place("o1")
    first.deliver()
    alone = Shop(first.store, NewerAlone)
    alone.seen = first.seen
    first.pay("o1")
    with pytest.raises(StepFailed) as failed:
        alone.deliver()
    assert isinstance(failed.value.cause, ProcessVersionMissing)
    assert "talk 'o1' began with version 1 of its code, which is missing" in str(failed.value.cause)
    assert alone.processes.migrate("talk", "o1").code == 2
    alone.deliver()
    assert alone.steps("o1")[-1] == ("payment.received", "running")
    assert alone.processes.steps("talk", "o1")[1].data["note"] == "from 1"


class Slow(Process, category="slow"):
    @starts(Order.Placed)
    def placed(self) -> None:
        self.timeout("wait", after=timedelta(hours=1))

    @reacts(Payment.Received, id="order_id")
    def paid(self) -> None: ...

    @times_out("wait")
    def waited(self) -> None: ...


class Slower(Slow, category="slow", version=2, earlier=[Slow]):
    pass


def test_the_timers_of_a_moved_instance_count_from_the_times_of_its_steps(tmp_path):
    now = [NOON]
    with SqlEventStore(f"sqlite:///{tmp_path}/shop.db", clock=lambda: now[0]) as store:
        store.create_tables()
        first = Shop(store, Slow)
        first.place("o1")
        first.now = now[0] = NOON + timedelta(hours=5)  # the worker was away
        first.deliver()
        (set_,) = first.processes.show("slow", "o1").scheduled
        (moved,) = Shop(store, Slower).processes.migrate("slow", "o1").scheduled
        assert set_.due == moved.due == NOON + timedelta(hours=6)


class Refused(Process, category="refused", sends=[Parcel]):
    @starts(Order.Placed)
    def placed(self) -> None:
        self.send(self.id, Parcel.dispatch)


class RefusedToo(Refused, category="refused", version=2, earlier=[Refused], sends=[Parcel]):
    pass


def test_a_problem_that_was_retried_does_not_come_back_when_the_instance_is_moved(shops):
    first = shops(Refused)
    sent(first, "shut")
    first.processes.retry("refused", "o1")
    assert Shop(first.store, RefusedToo).processes.migrate("refused", "o1").problem == ""


class Circle(Process, max_steps=3):
    @starts(Order.Placed, id="sku")
    @reacts(Order.Placed, id="sku")
    def again(self) -> None: ...


def test_a_process_in_a_circle_can_be_cancelled(shops):
    shop = shops(Circle)
    shop.place("o1", "o2", "o3")
    shop.deliver()
    shop.place("o4")
    with pytest.raises(StepFailed) as failed:
        shop.deliver()
    assert (type(failed.value.cause), failed.value.cause.code) == (ProcessStuck, "too-many-steps")
    assert shop.processes.cancel("circle", "tea").status == "compensated"


def test_a_scheduled_command_is_left_to_the_worker_that_knows_its_aggregate(shop):
    schedule = Schedule(shop.store, clock=lambda: shop.now)
    schedule.at(NOON).send("o1", Parcel.dispatch)
    assert shop.worker(commands=[Order]).run_once().failed == 0
    assert shop.worker(commands=[Parcel]).drain().commands == 1
    assert (shop.types("parcel-o1"), schedule.pending()) == (["parcel.sent"], [])


def test_a_command_that_fails_is_set_aside_while_others_are_sent_and_listed_with_its_reason_and_retried(shop):
    schedule = Schedule(shop.store, clock=lambda: shop.now)
    waiting = schedule.after(timedelta(days=30)).send("o2", Order.ship, carrier="Post")
    exploding = schedule.at(NOON).send("o1", explode)
    schedule.at(NOON).send("o3", Order.cancel, reason="late")
    worker = shop.worker(commands=[Order, Exploding])
    for _ in range(8):
        worker.run_once()
        shop.pass_time(minutes=30)
    assert (shop.types("order-o3"), worker.report.failed) == (["order.cancelled"], 5)
    aside, later = schedule.pending()
    assert schedule.pending(failed=True) == [aside]
    assert (aside.id, aside.due, aside.error) == (exploding, None, "ZeroDivisionError")
    assert (later.id, later.due) == (waiting, NOON + timedelta(days=30))
    assert schedule.retry(exploding)
    assert not schedule.retry(waiting)
    assert [one.id for one in schedule.pending(failed=True)] == []
    assert schedule.pending()[0].due == shop.now


def test_a_scheduled_command_that_is_refused_or_expires_is_logged(shop):
    schedule = Schedule(shop.store, clock=lambda: shop.now)
    refused = schedule.at(NOON).send("tea", Item.reserve, order_id="o1", quantity=1)
    expired = schedule.at(NOON).expiring(timedelta(0)).send("o1", Order.ship, carrier="Post")
    shop.pass_time(minutes=1)
    with capture_logs() as logs:
        shop.worker(commands=[Order, Item]).drain()
    told = {log["id"]: (log["event"], log["reason"]) for log in logs if log["log_level"] == "warning"}
    assert told[str(refused)] == ("scheduled command refused", "only 0 left")
    assert told[str(expired)][0] == "scheduled command expired"
    with pytest.raises(InvalidEventData, match="after which a command expires"):
        schedule.at(NOON).expiring(timedelta(-1))


def test_a_command_that_hangs_is_named_and_holds_up_no_other(shop):
    schedule = Schedule(shop.store, clock=lambda: shop.now)
    Parcel.mood = "hangs"
    schedule.at(NOON - timedelta(minutes=9)).send("o1", Parcel.dispatch)
    schedule.at(NOON).send("o2", Order.ship, carrier="Post")
    worker = shop.worker(commands=[Parcel, Order], timeout=0.5)
    with raises(
        SubscriptionError, code="handler-hung", match=r"a handler of parcel\.dispatch for parcel-o1 did not return"
    ):
        worker.run(stop=threading.Event())
    Parcel.asleep.set()
    shop.worker(commands=[Order]).drain()
    assert shop.types("order-o2") == ["order.shipped"]
    (again,) = schedule.pending()
    assert (again.attempts, again.due > shop.now) == (1, True)


class Patient(Process, sends=[Item]):
    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        reservation = {"order_id": self.id, "quantity": 1}
        sending = self.send(event.sku, Item.reserve, **reservation).undone_by(Item.release, **reservation)
        sending.delayed(timedelta(hours=1)).expiring(timedelta(minutes=5))


def test_a_delayed_command_expires_after_its_delay(shops):
    shop = shops(Patient)
    shop.begin(stock=5)
    shop.deliver()
    shop.pass_time(minutes=64)
    shop.worker().drain()
    assert shop.types("item-tea")[-1] == "item.reserved"


class Returning(Process, sends=[Parcel]):
    @starts(Order.Placed)
    def placed(self) -> None:
        self.send(self.id, Parcel.dispatch).undone_by(Parcel.dispatch)


def test_a_failed_compensation_is_listed_as_stuck_and_two_retries_undo_its_step_once(shops):
    shop = shops(Returning)
    shop.place("o1")
    shop.work()
    Parcel.mood = "shut"
    shop.processes.cancel("returning", "o1")
    shop.worker().drain()
    (stuck,) = shop.processes.instances(stuck=AGES)
    assert (stuck.status, stuck.waits_for) == ("compensation_failed", "a retry of its compensation")
    assert "the gate is shut" in stuck.problem
    Parcel.mood = "fine"
    shop.processes.retry("returning", "o1")
    with pytest.raises(ProcessError, match="returning 'o1' has nothing to repeat: it is compensating"):
        shop.processes.retry("returning", "o1")
    shop.worker().drain()
    assert shop.types("parcel-o1") == ["parcel.sent", "parcel.sent"]
    assert shop.status("o1") == "compensated"


def test_an_event_that_comes_again_after_its_inbox_row_was_deleted_sends_nothing_again(shops):
    shop = shops(Fulfilment)
    shop.begin(stock=5)
    shop.work()
    shop.pay("o1")
    shop.work()
    steps = shop.steps("o1")
    shop.seen = None
    shop.work()
    assert shop.types("order-o1") == ["order.placed", "order.shipped"]
    assert shop.types("payment-p-o1") == ["payment.received"]
    assert (shop.steps("o1"), shop.rows("factfold_scheduled")) == (steps, 0)


def test_an_early_event_that_comes_again_is_handled_once(shops):
    shop = shops(Counting)
    shop.pay("o1")
    for _ in range(2):
        shop.seen = None
        shop.deliver()
    shop.place("o1")
    shop.deliver()
    assert shop.dispatcher.load(Counting, "o1").paid == 1


class Counting(Process):
    paid: int = 0

    @starts(Order.Placed)
    def placed(self) -> None: ...

    @reacts(Payment.Received, id="order_id")
    def received(self) -> None:
        self.paid += 1


@pytest.mark.both_databases
def test_ids_of_any_printable_characters_name_their_instance(shop):
    for order in ("o-1", "a b", "ø/ü", "x%y_z'\"", "@0", "o1@2"):
        shop.send(order, Order.place, sku=order, quantity=1, amount=Decimal(1))
        shop.send(order, Item.receive, quantity=1)
    shop.work()
    for order in ("o-1", "a b", "ø/ü", "x%y_z'\"", "@0", "o1@2"):
        assert shop.steps(order) == [("order.placed", "running"), ("item.reserve", "running")]


MANY = 60


class Fan(Process, sends=[Item]):
    @starts(Order.Placed)
    def placed(self) -> None:
        for number in range(MANY):
            reservation = {"order_id": f"{self.id}-{number}", "quantity": 1}
            self.send("tea", Item.reserve, **reservation).undone_by(Item.release, **reservation)


def test_the_steps_of_many_commands_do_not_grow_with_their_square_and_are_undone_the_last_first(shops):
    shop = shops(Fan)
    shop.begin(stock=MANY)
    shop.work()
    shop.processes.cancel("fan", "o1")
    shop.worker().drain()
    assert shop.processes.show("fan", "o1").status == "compensated"
    events = [(event.type, event.data.get("order_id")) for event in shop.store.read_stream("item-tea")]
    reserved, released = ([id for type_, id in events if type_ == kind] for kind in ("item.reserved", "item.released"))
    assert released == reserved[::-1]
    assert len(released) == MANY
    recorded = sum(len(step.data["undoables"]) for step in shop.processes.steps("fan", "o1"))
    assert recorded < 2 * MANY * MANY / 5  # all of them in each step would be 2 * MANY * MANY


def paid_often(version):
    """A version of a process that takes one step for each payment."""

    class PaidOften(Process, category="paid_often", sends=[Item], version=version):
        @starts(Order.Placed)
        def placed(self) -> None:
            reservation = {"order_id": self.id, "quantity": 1}
            self.send("tea", Item.reserve, **reservation).undone_by(Item.release, **reservation)

        @reacts(Payment.Received, id="order_id")
        def paid(self) -> None: ...

    return PaidOften


def test_compensations_outlast_steps_that_record_none_and_two_migrations(shops):
    shop = shops(paid_often(1))
    shop.begin(stock=1)
    shop.work()
    for version in (2, 3):
        shop.send(f"p{version}", Payment.receive, order_id="o1", amount=Decimal(9))
        shop.deliver()
        shop.processes = Shop(shop.store, paid_often(version)).processes
        shop.processes.migrate("paid_often", "o1")
        newer = Shop(shop.store, paid_often(version))
        newer.seen, newer.now, shop = shop.seen, shop.now, newer
    shop.send("p4", Payment.receive, order_id="o1", amount=Decimal(9))
    shop.deliver()
    shop.processes.cancel("paid_often", "o1")
    shop.worker().drain()
    assert shop.types("item-tea")[-1] == "item.released"
