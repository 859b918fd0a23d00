"""API objects that nobody has checked: ``paths`` into them, ``values`` read whatever their type, ``editing`` as JSON
Patches; what operators write in files is read by ``yaml_text``, and its mistakes are worded by ``operator_files``.
"""
