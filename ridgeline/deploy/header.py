"""The C header of a program: the interface, and this program's numbers as constants."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ridgeline.deploy.tables import ABI_VERSION, Status

_TEXT = """\
/* {name}: {signature}

   Written by ridgeline. All functions may be called by several threads at once, on one program or
   on several; runs of a program with state take turns. No function but {prefix}_open and
   {prefix}_run allocates memory, and these do so by the allocator that the program was opened with.

   Inputs and outputs are arrays of addresses, in the order below. Elements lie in C order without
   gaps. An input is aligned to its elements, an output to 64 bytes. Inputs are only read; an
   output overlaps nothing else.
*/
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_VERSION {version} /* what {prefix}_version() returns for this header */

/* What functions return: 0, or a number that {prefix}_message() has a text for. */
{statuses}

{numbers}
#ifndef RIDGELINE_PROGRAM_TYPES
#define RIDGELINE_PROGRAM_TYPES

typedef struct rlx_program rlx_program; /* an opened program, with state of its own */

typedef struct rlx_allocator {{
  void *(*allocate)(void *context, size_t bytes, size_t alignment); /* NULL: there is no memory */
  void (*release)(void *context, void *memory, size_t bytes);
  void *context;
}} rlx_allocator;

typedef struct rlx_tensor {{
  const char *name;
  const char *dtype;    /* "float32", "int64", ... */
  int64_t rank;
  const int64_t *shape; /* -1 - n stands for size number n, INT64_MIN / 2 for a computed length */
  int64_t bytes;        /* -1 where it depends on sizes */
  int64_t alignment;
}} rlx_tensor;

typedef struct rlx_size {{
  const char *name;
  int64_t low, high; /* the program is for no others */
}} rlx_size;

typedef struct rlx_description {{
  int64_t version;
  const char *name;
  int64_t input_count;
  const rlx_tensor *inputs;
  int64_t output_count;
  const rlx_tensor *outputs;
  int64_t state_count;
  const rlx_tensor *state;
  int64_t size_count;
  const rlx_size *sizes;
  const char *json; /* all of this, and how arguments are nested */
}} rlx_description;
#endif

/* The version of the interface that the program was built with. */
int {prefix}_version(void);

/* What the program takes and gives. */
const rlx_description *{prefix}_describe(void);

/* Opens the program, with NULL for malloc's memory. Computes what depends on weights alone. */
int {prefix}_open(const rlx_allocator *allocator, rlx_program **program);

/* Runs the program. `sizes` are the lengths of dynamic axes, or NULL where there are none. */
int {prefix}_run(rlx_program *program, const void *const *inputs, void *const *outputs,
{indent}const int64_t *sizes);

/* The memory of state number n, to be read and written between runs; NULL if there is none. */
void *{prefix}_state(rlx_program *program, int n);

/* The instruction set that runs, or with NULL the one that would; NULL where none can. */
const char *{prefix}_instruction_set(const rlx_program *program);

/* How many threads all programs of this file use; 0: as many as the process has processors. */
int {prefix}_threads(int count);

/* The text for a number that another function returned. */
const char *{prefix}_message(int status);

/* Gives back all memory; no run may be under way. */
void {prefix}_close(rlx_program *program);

#ifdef __cplusplus
}}
#endif
#endif
"""


def header(manifest: Mapping[str, Any], prefix: str) -> str:
    """The header of the program that a manifest describes, with functions of this prefix."""
    upper = prefix.upper()
    statuses = "\n".join(
        f"#define {upper}_{status.name} {int(status)}"
        for status in Status
        if status is not Status.FIRST_INPUT
    )
    numbers = []
    for kind in ("inputs", "outputs", "state", "sizes"):
        singular = kind.removesuffix("s").upper()
        rows = manifest[kind]
        if rows:
            numbers.append(f"enum {{ /* {kind} */")
            words = _words([row["name"] for row in rows])
            numbers += [
                f"  {upper}_{singular}_{word} = {n}, /* {_shown(row)} */"
                for n, (word, row) in enumerate(zip(words, rows))
            ]
            numbers.append("};\n")
    given, made = (", ".join(_shown(row) for row in manifest[k]) for k in ("inputs", "outputs"))
    return _TEXT.format(
        name=manifest["name"], signature=f"({given}) -> ({made})", prefix=prefix, upper=upper,
        guard=f"{upper}_PROGRAM_H", version=ABI_VERSION, statuses=statuses,
        numbers="\n".join(numbers), indent=" " * (len(prefix) + 9),
    )  # fmt: skip


def _words(names: Sequence[str]) -> list[str]:
    """Names as words of C, each once."""
    made: list[str] = []
    for name in names:
        word = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper() or "X"
        made.append(word if word not in made else f"{word}_{len(made)}_")
    return made


def _shown(row: Mapping[str, Any]) -> str:
    """A row in a comment: name, type, and bytes where they are known."""
    if "low" in row:
        return f"{row['name']}: {row['low']} to {row['high']}"
    lengths = ", ".join(n if isinstance(n, str) else str(n) for n in row["shape"])
    known = all(isinstance(n, int) for n in row["shape"])
    count = f", {prod(row['shape'])} elements" if known else ""
    return f"{row['name']}: {row['dtype']}[{lengths}]{count}"
