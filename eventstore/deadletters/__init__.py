"""Dead letters: listed by their cause, shown, replayed and discarded, with a record of each action.

The room imports Kafka and fields. It never knows a view or a branch.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
