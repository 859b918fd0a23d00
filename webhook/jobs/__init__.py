"""Job kinds: how an API object becomes a gang, when it is gated, and the patches that hold, start and stop it.

Pure functions over data, in packages that may import those before them: ``kinds`` (the table of kinds), ``pricing``
(what a pod costs), ``pod_sets`` (where a kind keeps its pods), ``reading`` (object to ``JobRecord``; does it wait for
us), ``plain_pods`` (pods and PodGroups), ``compute_class`` (rules a platform has for its pods), ``patches`` (JSON
Patches).
"""
