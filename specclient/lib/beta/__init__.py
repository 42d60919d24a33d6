"""The helpers of the OpenAI client's beta, under its module paths."""
