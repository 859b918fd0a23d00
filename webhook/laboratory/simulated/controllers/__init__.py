"""The controllers that make a simulated cluster live, each under the identity that its original has.

They see the store without delay and act through the server's verbs, so that admission and quota see what they do.
"""
