"""What a client holds that follows a watch, as client-go's reflector does."""

import json

from webhook.visibility.http.watching import Watch


class Reflector:
    """Names, and the version to go on from; None before the first watch."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.version: int | None = None

    async def follow(self, watch: Watch) -> None:
        """Take in all events of one watch. Before the first bookmark it has no version to go on from."""
        async for line in watch.lines():
            event = json.loads(line)
            metadata = event["object"]["metadata"]
            if self.version is not None or event["type"] == "BOOKMARK":
                self.version = int(metadata["resourceVersion"])
            if event["type"] == "DELETED":
                self.held.discard(metadata["name"])
            elif event["type"] != "BOOKMARK":
                self.held.add(metadata["name"])
