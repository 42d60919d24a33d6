"""Azure's clients."""

import asyncio

from openai import AsyncAzureOpenAI, AzureOpenAI, OpenAI
from openai.lib.azure import AsyncAzureADTokenProvider


def client_for(azure: bool) -> OpenAI:
    if azure:
        return AzureOpenAI(
            azure_endpoint="https://name.openai.azure.com",
            azure_deployment="gpt",
            api_version="2024-10-21",
            azure_ad_token_provider=lambda: "token",
        )
    return OpenAI()


async def token() -> str:
    return "token"


async def main() -> None:
    provider: AsyncAzureADTokenProvider = token
    async with AsyncAzureOpenAI(
        azure_endpoint="https://name.openai.azure.com",
        api_version="2024-10-21",
        azure_ad_token_provider=provider,
    ) as client:
        completion = await client.chat.completions.create(
            model="gpt", messages=[{"role": "user", "content": "Hi"}]
        )
        print(completion.choices[0].message.content)


print(client_for(azure=True).chat.completions.create(model="gpt", messages=[]).id)
asyncio.run(main())
