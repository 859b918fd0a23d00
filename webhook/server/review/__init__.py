"""What all reviews share: what is read, and what may be answered.

``job_facts`` and ``pod_facts`` read, within ``bounds``; ``gang_owner`` says whose an object is and ``creators`` who may
write it (``controllers_labels``: the labels that a controller puts on its pods); ``resources_table`` has every resource
that can bring pods about, ``class_checks`` the compute-class rules; ``answer`` is what is said, ``decision_log`` and
``metrics`` note it. ``settings`` is what the webhook is told.
"""
