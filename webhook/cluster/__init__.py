"""What one process knows of one cluster: kept current by watches, read by webhook, reconciler and read API alike.

``feeds`` fills ``view``; ``census`` counts it; ``waiting`` and ``rebuild`` say which gangs wait and which are admitted.
"""
