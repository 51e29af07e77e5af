"""How often verdicts are right, on simulated jobs of known truth."""
