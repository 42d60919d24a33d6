"""Helpers under the module paths of the OpenAI client's ``lib.beta``."""
