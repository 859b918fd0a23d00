"""A small Kubernetes in memory: an API server with real semantics, and the controllers that make jobs run.

It is what ``make demo`` runs against by default and the world of the deterministic fault simulation. Time passes only
on the asyncio loop and chance comes only from the ``random.Random`` that is handed in, so a seed replays a run exactly.

Read in this order: ``resources`` (what is served), ``store`` (objects, revisions, watches), ``server`` (verbs),
``admission``, ``router`` (paths to verbs), ``api`` (the client seam, with ``faults``), ``http`` (the same over TCP),
``cluster`` (everything put together) and one module for each controller.

What it does not do: authorisation, authentication beyond naming the caller, field management, schema validation of
custom resources, and anything that no gang needs (volumes, services' endpoints, probes, images).
"""
