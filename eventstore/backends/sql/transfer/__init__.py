"""Events out of a store into a file, and from a file into a store: JSON lines for people, Parquet for programs."""
