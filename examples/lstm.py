"""An LSTM that learns to write a text, and goes on from a prompt with its state.

python examples/lstm.py my_text.txt
"""

import argparse

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.data import CharTokenizer, DataLoader, TextDataset, read_text
from ridgeline.models import LSTMLanguageModel


def write(model, tokenizer, prompt, count):
    """`count` characters after a prompt; the state carries what was read."""
    model.eval()
    place = next(model.parameters()).device
    tokens, state = rl.tensor(tokenizer.encode(prompt), device=place)[None], None
    written = []
    with rl.no_grad():
        for _ in range(count):
            scores, state = model(tokens, state)
            tokens = (scores[:, -1] / 0.8).softmax(1).multinomial(1)
            written.append(int(tokens))
    return prompt + tokenizer.decode(written)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", help="a UTF-8 text file, or a folder of them")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    rl.manual_seed(0)
    text = read_text(arguments.text)
    tokenizer = CharTokenizer(text)
    loader = DataLoader(
        TextDataset(text, arguments.length, tokenizer), 32, shuffle=True, drop_last=True
    )
    model = LSTMLanguageModel(tokenizer.vocab_size, 64, arguments.hidden, layers=2)
    model.to(arguments.device)
    optimizer = optim.Adam(model.parameters(), lr=3e-3)

    @rl.jit
    def step(tokens, following):
        optimizer.zero_grad()
        scores, _ = model(tokens)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    for epoch in range(arguments.epochs):
        losses = [float(step(*(b.to(arguments.device) for b in batch))) for batch in loader]
        print(f"epoch {epoch + 1}  loss {sum(losses) / len(losses):.4f}")
    print(write(model, tokenizer, text[:10], 200))


if __name__ == "__main__":
    main()
