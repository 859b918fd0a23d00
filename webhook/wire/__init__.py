"""JSON shapes of what the API server sends and reads; the only importer of msgspec."""
