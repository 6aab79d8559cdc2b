"""What tests of views need: a log in memory, and change events as a connector would write them."""
