"""The main job: many concurrent producers hand over to one runtime, and every byte is read back and compared.

`plan` says what the producers make, `producers` runs them, `hub_process` starts the local Hub beside them, `verify`
reads back, `report` puts the figures together, `run` is the whole.
"""
