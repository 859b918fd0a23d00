"""What all reviews share: what is read, and what may be answered.

``job_facts`` and ``pod_facts`` read, within ``bounds``; ``gang_owner`` says whose an object is and ``creators`` who may
write it; ``resources_table`` has every resource that can bring pods about, ``class_checks`` the compute-class rules;
``answer`` is what is said, ``decision_log`` and ``metrics`` note it. ``settings`` is what the webhook is told.
"""
