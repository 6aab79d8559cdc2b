"""Records put into one of several topics: declared, held against events, routed by a process of its own."""
