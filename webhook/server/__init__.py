"""The webhook: admission reviews in, decisions out. It writes nothing.

``gate`` is the decision path from body to body. ``http`` serves it, ``review`` is what all reviews share, ``jobs`` and
``pods`` and ``validate_policy`` decide (of deletions ``policy_in_use``), ``sharding`` has the replicas share a
namespace's headroom.
"""
