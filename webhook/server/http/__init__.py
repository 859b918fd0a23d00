"""How the webhook is served: the aiohttp application (``app``), its ``listener``, its certificate (``tls``), and
``worker_thread`` for what would keep pods waiting.
"""
