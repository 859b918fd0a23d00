"""The read API on the wire: discovery, OpenAPI, tables, watches, and whom it believes."""
