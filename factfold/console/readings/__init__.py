"""What the console asks of each source: functions of the clients that return frozen dataclasses."""
