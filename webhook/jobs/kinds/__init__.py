"""What Tutti has to know of each API kind that makes gangs: a table, and what an operator adds to it.

``kind`` is one row, ``shipped`` those that ship, ``custom_kinds`` reads an operator's, ``registry`` has all of them;
``rest_paths`` says where their objects are served.
"""
