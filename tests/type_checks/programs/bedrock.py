"""Bedrock's clients."""

import asyncio

from openai import AsyncBedrockOpenAI, BedrockOpenAI, OpenAI
from openai.lib.bedrock import AsyncBedrockTokenProvider


def client_for(bedrock: bool) -> OpenAI:
    if bedrock:
        return BedrockOpenAI(aws_region="us-east-1", bedrock_token_provider=lambda: "token")
    return OpenAI()


async def token() -> str:
    return "token"


async def main() -> None:
    provider: AsyncBedrockTokenProvider = token
    async with AsyncBedrockOpenAI(aws_region="us-east-1", bedrock_token_provider=provider) as client:
        completion = await client.with_options(max_retries=1).chat.completions.create(
            model="openai.gpt-oss-120b", messages=[{"role": "user", "content": "Hi"}]
        )
        print(completion.choices[0].message.content, client.aws_region)


print(client_for(bedrock=True).chat.completions.create(model="m", messages=[]).id)
asyncio.run(main())
