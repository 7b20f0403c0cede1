// One attention problem as plain memory: what the binding hands to whichever build of the kernel fits the processor.
#pragma once
#include <cstdint>

namespace logsparse {

enum class Type : int { float32 = 0, float64 = 1, bfloat16 = 2 };

// A (batch, head, row, channel) tensor with strides counted in elements.
struct View {
  void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, channel = 0;
};

struct Problem {
  Type type = Type::float32;
  int64_t batch = 0, heads = 0, length = 0;
  int64_t width = 0;        // channels of q and k
  int64_t value_width = 0;  // channels of v and of the result
  int64_t first_row = 0;    // rows before it are somebody else's work: out, lse and grad_out start at it
  const int64_t* starts = nullptr;  // first real position of each batch row; null: 0 for all
  const int64_t* distances = nullptr;  // ascending, the first one is 0, all below length
  int64_t distance_count = 0;
  uint64_t seed = 0;
  double dropout = 0;
  int threads = 1;
  View q, k, v, out, grad_out, grad_q, grad_k, grad_v;
  void* lse = nullptr;  // base-2 log-sum-exp of each row, (batch, heads, length - first_row), in the computing type
};

// Attention at one position of every path. History and steps lie densely: keys (series, head, channel, cell) and (series,
// head, path, channel, step), values (series, head, cell, channel) and (series, head, path, step, channel). All of them may
// be read a pair of vectors beyond their last number.
struct StepProblem {
  Type type = Type::float32;
  int64_t series = 0, paths = 0, heads = 0, width = 0, value_width = 0;
  int64_t history = 0;    // cells of the history
  int64_t step_room = 0;  // steps there is room for
  const int64_t* old_cells = nullptr;  // rows of the history, ascending
  const int64_t* new_cells = nullptr;  // the paths' own steps, ascending
  int64_t old_count = 0, new_count = 0;
  const int64_t* starts = nullptr;  // first real cell of each series' history; null: 0 for all
  int threads = 1;
  View q;  // row: the path
  const void *history_k = nullptr, *history_v = nullptr, *steps_k = nullptr, *steps_v = nullptr;
  void* out = nullptr;  // (series, path, head, value width), dense
};

#define LOGSPARSE_DECLARE(isa)          \
  namespace isa {                       \
  void forward(const Problem& problem);   \
  void backward(const Problem& problem);  \
  void step(const StepProblem& problem);  \
  }
LOGSPARSE_DECLARE(baseline)
LOGSPARSE_DECLARE(avx2)

}  // namespace logsparse
