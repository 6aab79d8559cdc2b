"""The pages of the console, one module each: what it asks of its sources, its model, its actions.

What several pages show has a module of its own.
"""
