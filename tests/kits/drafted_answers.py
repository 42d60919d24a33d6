"""Oracles for answers with drafts: transformers' distribution, and plain decoding of the same engine."""

from __future__ import annotations

import torch


def target_distribution(folder, prompt, vocab, temperature, top_k):
    """Return a target's exact distribution of two tokens, [vocab, vocab], from transformers' model."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        ids = torch.tensor([[*prompt, t] for t in range(vocab)])
        logits = model(input_ids=ids).logits.double() / temperature
    if top_k:
        kth = logits.topk(top_k).values[..., -1:]
        logits = logits.masked_fill(logits < kth, -torch.inf)
    p = torch.softmax(logits, -1)
    return (p[0, -2][:, None] * p[:, -1]).numpy()


def check_greedy_drafts(engine, prompts, batch, trees):
    """Check that greedy answers with drafts of each tree equal plain decoding, in batches of requests."""
    accepted = 0
    plain = [engine.generate(p, max_tokens=24, method="plain").token_ids for p in prompts]
    for tree in trees:
        for begin in range(0, len(prompts), batch):
            sinks = [[] for _ in prompts[begin : begin + batch]]
            for prompt, sink in zip(prompts[begin:], sinks, strict=False):
                engine.add(prompt, sink.append, max_tokens=24, draft_tree=tree, draft_length=3)
            while engine.step():
                pass
            for sink, wanted in zip(sinks, plain[begin:], strict=False):
                answer = sink[-1].generation
                assert answer.token_ids == wanted, (engine.method, tree)
                assert answer.speculation.drafted > 0
                accepted += answer.speculation.accepted
    assert accepted > 0
