"""The JSON Patches that Tutti writes: at creation (``marking``), on jobs (``job``) and their pod templates
(``template``), and on pods behind our scheduling gate (``pod``).
"""
