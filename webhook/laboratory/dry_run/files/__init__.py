"""Kubernetes objects from files: documents, what is wrong with them, and the pods and classes among them."""
