"""How things are written, the same everywhere.

Amounts and Kubernetes quantities (``amounts``, ``quantity``), our labels and annotations (``names``), what is wrong
with something that somebody wrote (``problem``), how many of something (``counted``, ``counted_jobs``), when
(``moments``), and what is left of a long text (``shortened``).
"""
