"""Starts, finds and stops the servers Penstock uses on one machine.

Nothing is imported here: the supervisor and the command line load only the part they need.
"""
