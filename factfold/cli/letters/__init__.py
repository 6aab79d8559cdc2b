"""Commands of dead letters: list, show, replay and discard.

The room imports the other rooms of commands, and the homes of letters. It never knows a page of the console.
"""
