"""The words everything else is said in: names, exact amounts, gangs, pods, policy, reasons, settings."""
