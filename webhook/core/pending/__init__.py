"""Where gangs wait: their queues, which gangs are not eligible, and an index of what could wake them.

``pending_queue`` has the queues and the order within each, ``pending_queues`` all of them together, ``gang_state`` one
gang, ``eligibility`` what the policy rules out, ``wake_index`` what wakes a gang, ``keyed_heap`` the heap
that they use.
"""
