"""The life of a group: built, run, verified, cut over, and bounded while it runs.

The room imports every room below it. It never knows a command or a page.
"""
