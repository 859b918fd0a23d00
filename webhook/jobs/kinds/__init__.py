"""What Tutti has to know of each API kind that makes gangs: a table, and what an operator adds to it."""
