"""The torch side of the update bench: one GRPO step for each line on standard input.

What TRL's GRPO step does with its defaults: log-probabilities of the replies alone
(`logits_to_keep`), the clipped surrogate, a row to a backward pass, gradient clipping, AdamW.

Command:   python experiments/torch_update.py DTYPE ROWS TOKENS
           (in an environment with torch and transformers)
"""

import sys

import torch
import transformers


def main(dtype: str, rows: int, tokens: int) -> None:
    config = transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
        max_position_embeddings=8192,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    ids = torch.randint(0, config.vocab_size, (rows, tokens))
    advantage = torch.tensor([1.0, -1.0]).repeat(rows // 2)
    kept = tokens // 2
    for _ in sys.stdin:
        optimizer.zero_grad()
        for row in range(rows):
            given = ids[row : row + 1]
            scores = model(given, logits_to_keep=kept + 1).logits[:, :-1].float()
            targets = given[:, -kept:]
            chosen = scores.gather(-1, targets[..., None])[..., 0]
            logps = chosen - torch.logsumexp(scores, dim=-1)
            ratio = torch.exp(logps - logps.detach())
            free, bound = ratio * advantage[row], ratio.clamp(0.8, 1.28) * advantage[row]
            (-torch.min(free, bound).mean() / rows).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
