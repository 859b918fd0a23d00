"""Rules for pods and gangs that carry the compute-class label (``rules``), and the policy file that they are read from
(``policy``; what is shipped is ``compute_classes.yaml``).
"""
