"""Rules for pods and gangs that carry the compute-class label, and the policy file they are read from."""
