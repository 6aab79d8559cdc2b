from eventstore.backends.sql.letters import (
    store_letters as store_letters,
)
from eventstore.deadletters.causes import (
    by_cause as by_cause,
)
from eventstore.deadletters.letters import (
    Letters as Letters,
)
from eventstore.deadletters.topic import (
    group_letters as group_letters,
)
