from eventstore.deadletters.letters import (
    by_cause as by_cause,
)
from eventstore.deadletters.letters import (
    Letters as Letters,
)
