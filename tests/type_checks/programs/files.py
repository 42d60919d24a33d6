"""Files: upload, list, content and deletion."""

from pathlib import Path

from openai import OpenAI
from openai.types import FileDeleted, FileObject

client = OpenAI()
uploaded: FileObject = client.files.create(file=Path("data.jsonl"), purpose="fine-tune")
named = client.files.create(
    file=("data.jsonl", b"{}", "application/jsonl"),
    purpose="user_data",
    expires_after={"anchor": "created_at", "seconds": 3600},
)
print(uploaded.id, uploaded.bytes, uploaded.filename, named.status)
for one in client.files.list(purpose="fine-tune", order="desc", limit=10):
    print(one.id, one.created_at)
content = client.files.content(uploaded.id)
data: bytes = content.read()
text: str = content.text
content.write_to_file("copy.jsonl")
deleted: FileDeleted = client.files.delete(uploaded.id)
print(len(data), len(text), deleted.deleted, client.files.wait_for_processing(named.id).purpose)
