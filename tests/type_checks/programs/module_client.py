"""The module as a client: options are its attributes."""

import openai

openai.api_key = "key"
openai.base_url = "http://localhost:8000/v1/"
openai.default_headers = {"X-Title": "program"}
openai.max_retries = 3
completion = openai.chat.completions.create(model="gpt-4.1", messages=[{"role": "user", "content": "Hi"}])
print(completion.choices[0].message.content, openai.models.list().data, openai.__version__)
response = openai.responses.create(model="gpt-4.1", input="Hi")
print(
    response.output_text,
    openai.files.list().data,
    openai.embeddings.create(model="m", input="a").data[0].embedding,
)
