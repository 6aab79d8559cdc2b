from eventstore.testing.delivering import (
    deliver as deliver,
    deliver_async as deliver_async,
)
from eventstore.testing.scenario import (
    FixedClock as FixedClock,
    FixedIds as FixedIds,
)
from eventstore.testing.scenario import given as given
