"""A small GPT-2 that learns to write a text file, character by character.

    python examples/char_gpt.py my_text.txt --out runs/char_gpt

Without a file it learns the reference that Python's help() prints. The folder gets a checkpoint
(`--resume` goes on), the model in Hugging Face's layout, the vocabulary, and TensorBoard events.
"""

import argparse
from pathlib import Path

import ridgeline as rl
from ridgeline import optim, train
from ridgeline.data import CharTokenizer, DataLoader, TextDataset, read_text
from ridgeline.models import GPT2, generate


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="?", help="a UTF-8 text file, or a folder of them")
    parser.add_argument("--out", type=Path, default=Path("runs/char_gpt"))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--length", type=int, default=64, help="characters in a window")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    if arguments.text:
        text = read_text(arguments.text)
    else:
        from pydoc_data.topics import topics

        text = "\n".join(topics[name] for name in sorted(topics))
    tokenizer = CharTokenizer(text)
    loader = DataLoader(
        TextDataset(text, arguments.length, tokenizer), 32, shuffle=True, drop_last=True
    )
    rl.manual_seed(0)
    model = GPT2(
        vocab_size=tokenizer.vocab_size, n_positions=256, n_embd=arguments.width,
        n_layer=arguments.layers, n_head=4, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
    ).to(arguments.device)  # fmt: skip
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    steps = arguments.epochs * len(loader)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    done = train.fit(
        model, loader, train.next_token, optimizer, scheduler=schedule, epochs=arguments.epochs,
        clip=1.0, out=arguments.out, resume=arguments.resume,
    )  # fmt: skip
    if not done.finished:
        return
    model.eval()
    model.save_pretrained(arguments.out)
    tokenizer.save(arguments.out / "vocabulary.json")
    start = tokenizer.encode(text[:20])
    written = generate(model, start[None], 200, temperature=0.8, seed=0)
    print(tokenizer.decode(written[0].tolist()))


if __name__ == "__main__":
    main()
