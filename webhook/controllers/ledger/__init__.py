"""The ledger as stored: its keeper, how much more it may take, and its recovery when it is lost.

``keeper`` says what is written, ``filing`` on which page, ``leased_writer`` writes it under one lease until the outcome
is known, ``stored`` is one object of it; the text is made in ``core/ledger/text``. ``terms`` gives each leadership its
own keeper, ``ledger_room`` holds back what does not fit, ``errors`` says what ends a term, and ``recovery`` and
``quarantine`` what comes after.
"""
