"""A small Kubernetes in memory: an API server with real semantics, and the controllers that make jobs run.

It is what ``make demo`` runs against by default and the world of the deterministic fault simulation. Time passes only
on the asyncio loop and chance comes only from the ``random.Random`` that is handed in, so a seed replays a run exactly.

Read in this order: ``objects`` (what is served and stored), ``server`` (verbs), ``admission``, ``requests`` (paths to
verbs), ``api`` (the client seam, where ``faults`` strike), ``http`` (the same over TCP), ``controllers`` (one module
each) and ``cluster`` (everything put together).

What it does not do: authorisation, authentication beyond naming the caller, field management, schema validation of
custom resources, and anything that no gang needs (volumes, services' endpoints, probes, images).
"""
