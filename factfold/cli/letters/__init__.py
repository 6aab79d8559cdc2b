"""Commands of dead letters: list, show, replay and discard.

The room imports the parts of commands next to it, and the homes of letters. It never knows a page of the console.
"""
