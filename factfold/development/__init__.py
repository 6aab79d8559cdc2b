"""Running a service while it is written: one group over changes of its code, or all parts of the service at once."""
