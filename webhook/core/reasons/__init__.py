"""Why a gang waits, what would wake it, why it is stopped: values first, the text of each made once.

``reasons`` is what everything else shows; ``blockers`` and ``barriers`` say what is in the way, ``wake_keys`` what
could change it, ``eviction`` why a running gang is stopped, ``neighbours`` what strangers are told of it.
"""
