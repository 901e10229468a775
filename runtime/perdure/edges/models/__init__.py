"""Models behind one contract: the scripted default and the vendors' official SDKs, one module each."""
