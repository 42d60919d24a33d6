"""An upload in parts."""

from pathlib import Path

from openai import OpenAI
from openai.types import Upload
from openai.types.uploads import UploadPart

client = OpenAI()
path = Path("large.jsonl")
upload: Upload = client.uploads.create(
    bytes=path.stat().st_size, filename=path.name, mime_type="application/jsonl", purpose="batch"
)
parts: list[UploadPart] = []
with path.open("rb") as source:
    while piece := source.read(1 << 26):
        parts.append(client.uploads.parts.create(upload.id, data=piece))
upload = client.uploads.complete(upload.id, part_ids=[part.id for part in parts])
print(upload.status, upload.file.id if upload.file else None)
again = client.uploads.upload_file_chunked(file=path, mime_type="application/jsonl", purpose="batch")
print(client.uploads.cancel(again.id).status)
