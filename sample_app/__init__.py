"""The sample services: a shop, and the flights of 2013 from New York, both on the whole road."""
