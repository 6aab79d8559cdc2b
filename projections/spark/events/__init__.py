"""Event records to rows, inside the JVM where it can be: decoded, brought up to date, folded."""
