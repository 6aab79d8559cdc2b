"""Commands of a service: new projects, its runners, its console, and the machine that it runs on.

The room imports the parts of commands next to it, and every other room of factfold. It never has a
rule of a package.
"""
