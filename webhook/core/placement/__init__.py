"""Whether a gang fits the nodes: what is free on each, which pods can go where, and where a gang goes.

``node`` and ``shape`` are the two sides of the question, ``capacity`` keeps what is free (``index`` by shape,
``domains`` by labels), and ``fit`` places a gang (``near`` its sets that are to be close together).
"""
