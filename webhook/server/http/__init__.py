"""How the gate is served: the aiohttp application, its listener, and the serving certificate."""
