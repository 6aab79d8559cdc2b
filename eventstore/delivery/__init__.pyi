from eventstore.backends.sql.source import StoreSource as StoreSource
from eventstore.delivery.async_subscriber import (
    AsyncSubscriber as AsyncSubscriber,
)
from eventstore.delivery.attempt import (
    DeliveryReport as DeliveryReport,
)
from eventstore.delivery.source import (
    Arrival as Arrival,
    DeadLetter as DeadLetter,
    Lag as Lag,
    Source as Source,
)
from eventstore.delivery.subscriber import (
    Subscriber as Subscriber,
)
