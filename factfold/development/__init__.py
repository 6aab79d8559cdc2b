"""A service while it is written: one group over changes of its code, or all parts of the service at once.

The room imports the parts of commands. It never knows a page of the console.
"""
