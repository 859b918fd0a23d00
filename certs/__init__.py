"""Certificates for Tutti: a private authority, the leaf that webhook and read API serve, and their rotation.

Reading order: ``authority`` (what a certificate contains), ``rotation`` (what is due when: pure), ``store``
(directories, swapped as a whole), ``cluster`` (Secrets and the caBundle of our registrations), ``__main__`` (the
commands).
"""
