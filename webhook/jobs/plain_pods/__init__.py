"""Pods that no job kind makes: their groups, the PodGroup objects they join, and the record of one pod."""
