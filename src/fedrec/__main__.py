"""``python -m fedrec``."""

from fedrec.cli import main

main()
