"""A language model of LSTM layers."""

from __future__ import annotations

from typing import Any

from ridgeline import nn
from ridgeline.tensors.tensor import Tensor


class LSTMLanguageModel(nn.Module):
    """Tokens [batch, length] in, scores [batch, length, words] of each next token out."""

    def __init__(
        self, words: int, width: int = 128, hidden: int = 256, layers: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True, dropout=dropout)
        self.drop, self.head = nn.Dropout(dropout), nn.Linear(hidden, words)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The scores, and the state to go on from with the next piece of text."""
        inner, state = self.lstm(self.drop(self.tokens(tokens)), state)
        return self.head(self.drop(inner)), state
