"""Rules for pods and gangs that carry the compute-class label (``rules``), and the catalog that they are read from
(``catalog``; what is shipped is ``compute_classes.yaml``).
"""
