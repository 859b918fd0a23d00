"""The read API on the wire: discovery, OpenAPI, tables, watches, and which proxy it trusts."""
