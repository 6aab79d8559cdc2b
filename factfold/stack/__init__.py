"""PostgreSQL, Kafka and Kafka Connect on this machine, without Docker.

The room imports errors of the lower packages, and the plug-ins of connectors. It never knows a service.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
