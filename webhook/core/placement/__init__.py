"""Whether a gang fits the nodes: what is free on each, which pods can go where, and where a gang goes.

``node`` and ``shape`` are the two sides of the question, ``capacity`` keeps what is free (``index`` by shape,
``domains`` by labels), and ``fit`` places a gang (``near`` its sets that are to be close together, ``search`` a second
try) on an ``overlay`` of it. The outcome is an ``allotment``, or ``misplaced``, which ``explain`` puts in words.
``claimed`` keeps room for gangs whose victims are still there, ``vacated`` asks what their going would give.
"""
