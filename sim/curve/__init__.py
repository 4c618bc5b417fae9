"""Hits against capacity: no scheduler, no time.

``stack_distances`` gives the hits of one chain of blocks at every capacity in one pass,
``sampling`` an estimate of them with its error, ``serial`` those of a model's groups, one request
at a time, at given capacities.
"""
