from eventstore.backends.sql.source import StoreSource as StoreSource
from eventstore.delivery.arrivals import Arrival as Arrival
from eventstore.delivery.async_subscriber import (
    AsyncSubscriber as AsyncSubscriber,
)
from eventstore.delivery.attempt import (
    DeliveryReport as DeliveryReport,
)
from eventstore.delivery.source import (
    DeadLetter as DeadLetter,
    Lag as Lag,
    Source as Source,
)
from eventstore.delivery.subscriber import (
    Subscriber as Subscriber,
)
