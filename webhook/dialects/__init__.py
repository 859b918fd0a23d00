"""Dialects: one project's way to write quota each, compiled to the core's queues, cohorts, flavors and fences.

Pure: plain dictionaries (decoded JSON or YAML) in, core policy types and problems out. ``merge`` is the way in.
"""
