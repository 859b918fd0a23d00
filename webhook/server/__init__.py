"""The webhook: admission reviews in, decisions out.

Reading order: ``gate`` (the decision path), ``mutate_jobs``, ``validate_jobs``, ``validate_pods``, ``validate_policy``
(what is decided), ``tally``, ``ownership``, ``forward`` (how replicas share headroom), ``app``, ``listener``, ``tls``
(how it is served).
"""
