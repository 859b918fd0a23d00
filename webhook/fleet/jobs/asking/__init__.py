"""Which member one gang is offered to, and for how long.

``choice`` says which is asked next (pure), ``patience`` how long a copy is left alone before that, ``refusal`` what a
member refused, ``failed`` what follows where a gang failed in one.
"""
