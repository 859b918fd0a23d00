"""Pods that no job kind makes: the record of one (``pod``), how it says which group it belongs to (``group_names``), a
group as one gang (``groups``), and the PodGroup objects that they join (``pod_group``).
"""
