/* Trains LeNet-5 in C: the step and the program that predicts are objects that Ridgeline wrote.

     python lenet.py export && cc -O2 train_lenet.c step.o predict.o -lm -o train_lenet
     python lenet.py feed --epochs 60 | ./train_lenet

   Standard input is a sequence of records: an int32 (1: learn, 2: test, 0: the end), how many images
   count as an int32, learning rate and momentum as two doubles, then BATCH images and labels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict.h"
#include "step.h"

enum { BATCH = 64, PIXELS = 32 * 32, CLASSES = 10, END = 0, LEARN = 1 };

static float images[BATCH * PIXELS];
static int64_t labels[BATCH];
static _Alignas(64) float loss[1];
static _Alignas(64) float scores[BATCH * CLASSES];

static void check(int status, const char *text) {
  if (status) {
    fprintf(stderr, "%s\n", text);
    exit(1);
  }
}

static void read_all(void *memory, size_t bytes) {
  check(fread(memory, 1, bytes, stdin) != bytes, "the input ends too early");
}

/* The memory of a part of the step's state, by name; NULL where there is none. */
static void *state(rlx_program *step, const char *name) {
  const rlx_description *about = step_describe();
  for (int n = 0; n < about->state_count; n++)
    if (!strcmp(about->state[n].name, name)) return step_state(step, n);
  return NULL;
}

static void set_number(rlx_program *step, const char *name, double value) {
  const rlx_description *about = step_describe();
  for (int n = 0; n < about->state_count; n++)
    if (!strncmp(about->state[n].name, name, strlen(name))) {
      if (!strcmp(about->state[n].dtype, "float64")) *(double *)step_state(step, n) = value;
      if (!strcmp(about->state[n].dtype, "float32")) *(float *)step_state(step, n) = (float)value;
    }
}

/* How many of the first images have the label that the parameters of the step give them. */
static int count_right(rlx_program *step, rlx_program *predict, int count) {
  const rlx_description *wanted = predict_describe();
  const void **inputs = calloc((size_t)wanted->input_count, sizeof(void *));
  void *outputs[] = {scores};
  char name[256];
  inputs[0] = images;
  for (int i = 1; i < wanted->input_count; i++) { /* parameters_0.weight is model.0.weight there */
    snprintf(name, sizeof name, "model.%s", wanted->inputs[i].name + strlen("parameters_"));
    inputs[i] = state(step, name);
  }
  int status = predict_run(predict, inputs, outputs, NULL);
  check(status, predict_message(status));
  free(inputs);
  int right = 0;
  for (int i = 0; i < count; i++) {
    int best = 0;
    for (int c = 1; c < CLASSES; c++)
      if (scores[i * CLASSES + c] > scores[i * CLASSES + best]) best = c;
    right += best == labels[i];
  }
  return right;
}

int main(void) {
  rlx_program *step, *predict;
  int status = step_open(NULL, &step);
  check(status, step_message(status));
  status = predict_open(NULL, &predict);
  check(status, predict_message(status));
  printf("code for %s, %d threads\n", step_instruction_set(step), step_threads(0));

  const void *inputs[] = {images, labels};
  void *outputs[] = {loss};
  int32_t head[2];
  double numbers[2];
  int steps = 0, tested = 0, right = 0;
  for (;;) {
    read_all(head, sizeof head);
    if (head[0] == END) break;
    read_all(numbers, sizeof numbers);
    read_all(images, sizeof images);
    read_all(labels, sizeof labels);
    if (head[0] == LEARN) {
      set_number(step, "optimizer.group0.lr", numbers[0]);
      set_number(step, "optimizer.group0.momentum", numbers[1]);
      status = step_run(step, inputs, outputs, NULL);
      check(status, step_message(status));
      steps++;
    } else {
      right += count_right(step, predict, head[1]);
      tested += head[1];
    }
  }
  printf("%d steps, the last loss %.9g\n", steps, loss[0]);
  if (tested) printf("test accuracy %.6f\n", (double)right / tested);
  step_close(step);
  predict_close(predict);
  return 0;
}
