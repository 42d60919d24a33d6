"""Fleets: replicas of vLLM on a Ray cluster, planned, deployed and rendered for other tools.

Nothing here imports Ray. Commands run :mod:`specclient_local.fleets.ray_program` with the interpreter of the
environment that has Ray.
"""
