"""API objects that nobody has checked: paths into them, values read whatever their type, and edits as JSON Patches."""
