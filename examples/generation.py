"""Text from a trained model: greedy, or drawn with a temperature, token by token.

    python examples/char_gpt.py --out runs/char_gpt
    python examples/generation.py runs/char_gpt --prompt "The " --temperature 0.8 --top-p 0.9

The folder holds Hugging Face's `config.json` and safetensors weights of a GPT-2 or Llama, and a
`vocabulary.json` of characters or a `tokenizer.json`.
"""

import argparse
from pathlib import Path

from ridgeline.data import CharTokenizer, FileTokenizer
from ridgeline.models import from_pretrained, generate


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompt", default="The ")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest")
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    characters = arguments.folder / "vocabulary.json"
    tokenizer = (
        CharTokenizer.load(characters) if characters.exists() else FileTokenizer(arguments.folder)
    )
    model = from_pretrained(arguments.folder).to(arguments.device).eval()
    prompt = tokenizer.encode(arguments.prompt)
    print(arguments.prompt, end="", flush=True)
    stream = generate(
        model, prompt[None], arguments.tokens, temperature=arguments.temperature,
        top_k=arguments.top_k, top_p=arguments.top_p, seed=arguments.seed, stream=True,
    )  # fmt: skip
    for token in stream:
        print(tokenizer.decode(token.tolist()), end="", flush=True)
    print()


if __name__ == "__main__":
    main()
