"""The command line and the local stack: imports the other packages, is imported by none."""
