"""The JSON Patches that Tutti writes: at creation (``marking``), where a change leaves our marks out (``kept_marks``),
on jobs (``job``) and their pod templates (``template``), and on pods behind our scheduling gate (``pod``).
"""
