"""Topics become tables, and tables are joined into views: declared here, executed by Spark.

Names are loaded when they are first used: importing this package starts nothing and loads neither Spark nor a driver.
Errors are in `projections.errors`.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
