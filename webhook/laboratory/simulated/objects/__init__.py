"""What the simulated API server stores: resources, revisions, defaults, validation, deletion, watches."""
