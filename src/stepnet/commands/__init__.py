"""The commands of the command line: dataclasses that are parsed from flags, then called.

A command's fields are its flags; its `__call__` calls the library and prints. Heavy imports stand inside
`__call__`, so that `stepnet --help` answers at once.
"""
