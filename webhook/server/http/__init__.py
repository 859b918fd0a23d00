"""How the gate is served: the aiohttp application (``app``), its ``listener``, the serving certificate (``tls``), and
``worker_thread`` for what would keep pods waiting.
"""
