# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Trains a GPT on text, byte by byte, with plain PyTorch on one device.

    python train_gpt.py --device cpu --layers 2 --width 128 --context 64 --steps 200
    trnsim run --machine trn2 train_gpt.py

The text is Python's own language reference, which comes with every Python. The defaults are the
shape of the smallest GPT-2: 12 layers, 768 wide.
"""

import argparse
import math
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import nn

BYTES = 256


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm and beside a residual."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class GPT(nn.Module):
    """Token and place embeddings, blocks, and a head that shares the token embedding's weight."""

    def __init__(self, layers, width, heads, context, vocabulary=BYTES, dropout=0.0):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self._initialise)
        for block in self.blocks:  # keeps the residual stream's variance whatever the depth
            nn.init.normal_(block.attention.out.weight, std=0.02 / math.sqrt(2 * layers))
            nn.init.normal_(block.feed_forward[2].weight, std=0.02 / math.sqrt(2 * layers))

    @staticmethod
    def _initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens, targets):
        """The mean loss of predicting `targets` from `tokens`, both [batch, length]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def parameter_groups(model, weight_decay):
    """Matrices are decayed; biases and norms are not."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]


def text():
    """Python's language reference as one tensor of bytes."""
    reference = "\n".join(topics[name] for name in sorted(topics))
    return torch.tensor(list(reference.encode()), dtype=torch.int64)


def batches(data, batch, context, device, seed):
    """Random pieces of the text with the same pieces one byte later, for ever."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - context - 1, (batch,), generator=generator).tolist()
        tokens = torch.stack([data[at : at + context] for at in starts])
        targets = torch.stack([data[at + 1 : at + context + 1] for at in starts])
        yield tokens.to(device, non_blocking=True), targets.to(device, non_blocking=True)


def learning_rate(step, steps, top, warm_up):
    """Rises for `warm_up` steps, then falls along a cosine to a tenth."""
    if step < warm_up:
        return top * (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return top * (0.55 + 0.45 * math.cos(math.pi * done))


def arguments(description, more=None):
    """Options of this script, of those that train in another way, and what these have beside."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", help="cpu, cuda, trn, ... (default: the accelerator)")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=0, help="default: one for each 64 of width")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8, help="sequences on each device")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    for name, option in (more or {}).items():
        parser.add_argument(name, **option)
    args = parser.parse_args()
    args.heads = args.heads or max(1, args.width // 64)
    return args


def choose_device(name):
    """The device that was asked for, else the accelerator, else the CPU."""
    if name:
        return torch.device(name)
    if torch.accelerator.is_available():
        return torch.accelerator.current_accelerator()
    return torch.device("cpu")


def train(model, parameters, data, args, device, seed, log):
    """Trains for args.steps steps; `log(step, loss)` is called with a float."""
    optimizer = torch.optim.AdamW(parameters, lr=args.lr, betas=(0.9, 0.95))
    source = batches(data, args.batch, args.context, device, seed)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=args.dtype == "bfloat16")
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr, warm_up=args.steps // 10 + 1)
        tokens, targets = next(source)
        with autocast:
            loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % args.log_every == 0 or step == args.steps - 1:
            log(step, loss.item())


def main():
    args = arguments(__doc__.splitlines()[0])
    device = choose_device(args.device)
    torch.manual_seed(args.seed)
    model = GPT(args.layers, args.width, args.heads, args.context, dropout=args.dropout)
    model.to(device)
    count = sum(p.numel() for p in model.parameters())
    print(f"GPT of {count / 1e6:.1f} million parameters on {device}")
    train(
        model,
        parameter_groups(model, args.weight_decay),
        text(),
        args,
        device,
        args.seed,
        log=lambda step, loss: print(f"step {step:4d}  loss {loss:.4f}", flush=True),
    )


if __name__ == "__main__":
    main()
