"""What the engine's process has: it runs jobs that were prepared elsewhere (service/job.py).

The process is to be small, so what is imported here is the native core and the lightest of the standard library; more
comes with what an application has, such as operators in Python.
"""
