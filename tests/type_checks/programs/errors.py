"""Errors: which are caught, and what they tell."""

import openai
from openai import APIConnectionError, APIStatusError, OpenAI, RateLimitError

client = OpenAI()


def retry_after(error: RateLimitError) -> float:
    return float(error.response.headers.get("retry-after") or 1)


try:
    client.models.retrieve("none")
except RateLimitError as error:
    print(retry_after(error), error.request_id)
except openai.NotFoundError as error:
    print(error.status_code, error.code, error.param, error.type, error.message, error.body)
except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
    print(error.response.status_code)
except APIStatusError as error:
    print(error.status_code, error.request.url)
except openai.APITimeoutError as error:
    print(error.request.method)
except APIConnectionError as error:
    print(error.__cause__)
except openai.OpenAIError as error:
    raise SystemExit(str(error)) from error
