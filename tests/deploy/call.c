/* Calls a program of one input and one output: reads the input, writes the output, and says what
   the interface answers to wrong calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "f.h"

static int blocks, bytes_held;

static void *allocate(void *context, size_t bytes, size_t alignment) {
  *(int *)context += 1;
  bytes_held += (int)bytes;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void *context, void *memory, size_t bytes) {
  *(int *)context -= 1;
  bytes_held -= (int)bytes;
  free(memory);
}

static void *refuse(void *context, size_t bytes, size_t alignment) {
  (void)context, (void)bytes, (void)alignment;
  return NULL;
}

int main(int count, char **arguments) {
  const rlx_description *about = rlx_describe();
  if (rlx_version() != RLX_VERSION || about->input_count != 1) return 3;
  size_t in = (size_t)about->inputs[0].bytes, out = (size_t)about->outputs[0].bytes;
  void *x = aligned_alloc(64, (in + 63) / 64 * 64), *y = aligned_alloc(64, (out + 63) / 64 * 64);
  FILE *file = fopen(count > 1 ? arguments[1] : "x.bin", "rb");
  if (!file || fread(x, 1, in, file) != in) return 4;
  fclose(file);
  rlx_program *program;
  rlx_allocator none = {refuse, release, &blocks}, own = {allocate, release, &blocks};
  printf("%s\n", rlx_message(rlx_open(&none, &program)));
  if (program) return 5;
  const void *inputs[] = {x};
  void *outputs[] = {y}, *askew[] = {(char *)y + 4}, *missing[] = {NULL};
  printf("%s\n", rlx_message(rlx_run(program, inputs, outputs, NULL)));
  if (rlx_open(&own, &program)) return 6;
  printf("%s\n", rlx_message(rlx_run(program, inputs, askew, NULL)));
  printf("%s\n", rlx_message(rlx_run(program, inputs, missing, NULL)));
  for (int threads = 1; threads < 5; threads++) {
    if (rlx_threads(threads) != threads || rlx_run(program, inputs, outputs, NULL)) return 7;
    file = fopen("y.bin", threads == 1 ? "wb" : "ab");
    if (!file || fwrite(y, 1, out, file) != out) return 8;
    fclose(file);
  }
  printf("%s\n", rlx_instruction_set(program));
  rlx_close(program);
  rlx_close(NULL);
  if (blocks || bytes_held) return 9;
  return 0;
}
