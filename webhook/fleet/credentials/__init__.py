"""A member's credentials: what a kubeconfig may be (``kubeconfig``), how one is made (``account``), its ``expiry``."""
