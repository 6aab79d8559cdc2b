"""Commands of views: rebuild, run, verify and switch groups, route branches, archive topics.

The room imports the other rooms of commands, and projections. It never knows a page of the console.
"""
