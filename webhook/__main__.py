"""``python -m webhook`` is the command ``tutti``."""

from webhook.cli import main

main()
