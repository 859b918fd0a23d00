"""Kueue's dialect: its ``objects``, their ``quota``, its admission ``checks``, and what may change in ``updates``."""
