"""Amazon Bedrock: the wire dialect of its Converse API, its regions, and requests signed for AWS."""
