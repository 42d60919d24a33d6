"""The whole pass of a model in one call, compiled on the machine it runs on."""
