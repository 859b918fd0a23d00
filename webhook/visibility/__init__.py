"""The read API ``visibility.tutti.dev/v1alpha1``: workloads and queues, served from memory; nothing is ever written.

An aggregated API: kube-apiserver authenticates and authorises the caller and passes the request on with the front
proxy's certificate. Every reconciler replica serves it, followers too, from the same view and the same engine.
``documents.reporter`` writes documents into a ``watch_cache`` that numbers every change; ``http.app`` reads them off.
"""
