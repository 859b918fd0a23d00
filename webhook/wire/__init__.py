"""JSON shapes of what the API server sends and reads; the only importer of msgspec.

``admission_review`` in and out, ``watch`` for lists, events and errors, ``pods`` for the few fields of a pod that we
read, ``times`` as Kubernetes writes them, ``nesting`` for how deep JSON may go.
"""
