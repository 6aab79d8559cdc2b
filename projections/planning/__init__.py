"""Plans of views: which rows a change reaches, and whether a live batch answers as a rebuild does.

The room imports declarations, and follows the analysed plan that it is given. It never knows a store or a log.
"""
