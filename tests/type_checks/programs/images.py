"""Images: generation, edits and streams of partial images."""

import base64
from pathlib import Path

from openai import OpenAI
from openai.types import Image, ImagesResponse

client = OpenAI()
made: ImagesResponse = client.images.generate(
    model="gpt-image-1", prompt="a fox", size="1024x1024", quality="high", n=2, background="transparent"
)


def save(image: Image, path: Path) -> None:
    if image.b64_json:
        path.write_bytes(base64.b64decode(image.b64_json))


for number, image in enumerate(made.data or []):
    save(image, Path(f"{number}.png"))
with Path("0.png").open("rb") as source:
    edited = client.images.edit(image=[source, Path("1.png")], prompt="a red fox", model="gpt-image-1")
print(edited.created, edited.usage.total_tokens if edited.usage else None)
for event in client.images.generate(prompt="a fox", model="gpt-image-1", stream=True, partial_images=2):
    if event.type == "image_generation.partial_image":
        print(event.partial_image_index)
    else:
        print(event.usage.total_tokens)
variation = client.images.create_variation(image=b"png", size="512x512")
print(variation.data)
