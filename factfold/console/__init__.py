"""The console: what the commands print, as pages in a browser and as JSON.

The room imports the parts of commands, and the lower packages. It never starts Spark.

parts       what one source says, read at most once in a moment, or why it says nothing
sources     addresses and open clients; a look at several sources side by side
page        a page: a model made from the sources, its template, its actions
pages       the pages, one module each with its readings; `app` lists them
security    token, host, origin and the headers of every answer
"""
