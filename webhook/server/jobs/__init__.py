"""Reviews of jobs: mutated at creation, validated at every change."""
