"""From a request to a verb: routing, discovery, selectors, patches, who asks, and what is refused."""
