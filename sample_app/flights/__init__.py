"""The flights of 2013 from New York: every flight its events, the other tables captured by Debezium."""
