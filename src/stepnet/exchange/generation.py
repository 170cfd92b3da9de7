"""`stepnet generate`: continue a text with a language model, token by token."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from stepnet.arguments import Count, NotNegative, Seed, checked
from stepnet.data import BYTES, encode
from stepnet.errors import UserError
from stepnet.exchange.model_description import description_of
from stepnet.nets import training_mode
from stepnet.randomness import Stream, random_words, uniform


@checked
def generate(
    network: nn.Module, prompt: str = "\n", length: Count = 500, temperature: NotNegative = 0.8, seed: Seed = 0
) -> Iterator[str]:
    """Yield a continuation of `prompt`, piece by piece: `length` tokens, drawn by the network's probabilities.

    The logits are divided by `temperature`; at 0 every token is the likeliest one. The network sees the last `context`
    tokens, and nothing is cached between them. It is evaluated in evaluation mode; each module keeps its training flag.
    The draws are a function of the seed.
    """
    description = description_of(network)
    context, classes = getattr(network, "context", None), description.classes
    if context is None or not classes:
        raise UserError(f"{description.model} does not continue text: expected a GPT that was trained on text")
    if not prompt:
        raise UserError("the prompt is empty: expected at least one character")
    tokens = torch.from_numpy(encode(prompt, classes, "the prompt"))
    draws = uniform(random_words(length, seed, Stream.TOKENS)).tolist()
    return _continuation(network, tokens, context, classes, draws, temperature)


def _continuation(
    network: nn.Module, tokens: Tensor, context: int, classes: tuple[str, ...], draws: list[float], temperature: float
) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    like = next(network.parameters())
    tokens = tokens[None].to(like.device)
    for draw in draws:
        with training_mode(network, False), torch.inference_mode():  # flags are restored before each token is yielded
            logits = network(tokens[:, -context:])[0, -1].cpu().double()
        token = draw_token(logits, draw, temperature)
        tokens = torch.cat([tokens[:, -context:], tokens.new_tensor([[token]])], dim=1)
        yield decoder.decode(bytes([token])) if classes == BYTES else classes[token]


def draw_token(logits: Tensor, draw: float, temperature: float) -> int:
    """Return the token at which the distribution function of `softmax(logits / temperature)` exceeds `draw`."""
    if temperature == 0:
        return int(logits.argmax())
    below = (logits / temperature).softmax(0).cumsum(0)
    return min(int(torch.searchsorted(below, draw * below[-1], right=True)), len(logits) - 1)
