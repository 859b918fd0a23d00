"""The webhook: admission reviews in, decisions out. It writes nothing.

``handler`` takes a review from body to body. ``http`` serves it, ``review`` is what all reviews share, ``jobs``,
``pods`` and ``validate_policy`` decide (of deletions ``policy_in_use``), ``sharding`` has the replicas share a
namespace's headroom.
"""
