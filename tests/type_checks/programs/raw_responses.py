"""Raw responses: headers beside results, and streamed bodies."""

from openai import OpenAI
from openai._legacy_response import LegacyAPIResponse
from openai.types import FileObject
from openai.types.chat import ChatCompletion

client = OpenAI()
raw: LegacyAPIResponse[ChatCompletion] = client.chat.completions.with_raw_response.create(
    model="gpt-4.1", messages=[{"role": "user", "content": "Hi"}]
)
completion: ChatCompletion = raw.parse()
print(
    raw.headers.get("x-request-id"), raw.status_code, raw.retries_taken, completion.choices[0].message.content
)
file: FileObject = client.files.with_raw_response.retrieve("file-1").parse()
print(file.filename, client.with_raw_response.models.list().parse().data)
with client.chat.completions.with_streaming_response.create(
    model="gpt-4.1", messages=[{"role": "user", "content": "Hi"}]
) as response:
    print(response.headers.get("content-type"), response.parse().id)
    for line in response.iter_lines():
        print(line)
with client.files.with_streaming_response.content("file-1") as content:
    content.stream_to_file("copy")
