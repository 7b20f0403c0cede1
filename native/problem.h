// The problems that the binding passes to a build of the kernel, as raw memory.
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
  int64_t dense_rows = 0;   // rows that see their whole past instead of the pattern's cells
  int64_t first_row = 0;    // rows before it belong to another pass
  bool accumulate = false;  // add to existing gradients
  const int64_t* starts = nullptr;  // first real position of each batch row; null: 0 for all
  const int64_t* distances = nullptr;  // ascending from 0, all below length
  int64_t distance_count = 0;
  uint64_t seed = 0;
  double dropout = 0;
  int threads = 1;
  View q, k, v, out, grad_out, grad_q, grad_k, grad_v;
  void* lse = nullptr;  // base-2 log-sum-exp per row, (batch, heads, length), in the type of computation
  int64_t lse_head = 0;  // rows of lse per head
};

// Attention at one position of every path. History and steps are dense: keys (series, head, channel, cell) and
// (series, head, path, channel, step), values (series, head, cell, channel) and (series, head, path, step, channel).
// All of them are readable a pair of vectors beyond their last number.
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

// Memory of one block of a decoder for one more position. Weights are dense, (results, terms); those of queries and
// keys have their terms ordered by step. Paths are stored in tiles of 64: (tile, step, channel, path).
struct AdvanceBlock {
  const void *query = nullptr, *query_bias = nullptr, *key = nullptr, *key_bias = nullptr, *value = nullptr,
             *value_bias = nullptr, *merge = nullptr, *merge_bias = nullptr, *widen = nullptr, *widen_bias = nullptr,
             *narrow = nullptr, *narrow_bias = nullptr, *attention_gain = nullptr, *attention_shift = nullptr,
             *feed_gain = nullptr, *feed_shift = nullptr;
  const void *history_k = nullptr, *history_v = nullptr;  // (series, cell, channel)
  void* seen = nullptr;  // inputs: kernel - 1 of the history, then those of the steps
  void *steps_k = nullptr, *steps_v = nullptr;
  const int64_t *old_cells = nullptr, *new_cells = nullptr;  // cells of the history and of the steps, ascending
  int64_t old_count = 0, new_count = 0;
};

// One more position of every path, from inputs (series, path, input) to raw parameters (series, path, parameter).
struct AdvanceProblem {
  Type type = Type::float32;
  int64_t series = 0, paths = 0, inputs = 0, width = 0, heads = 0, head_width = 0, wide = 0, kernel = 0, history = 0;
  int64_t step_room = 0;  // steps there is room for
  int64_t step = 0;  // steps taken before
  int64_t parameters = 0;  // of the likelihood
  int64_t anchors = 0;  // number of first inputs that the first parameter corrects
  int64_t seen_from = -1;  // index of the input that marks the first of them as observed; -1: all are
  bool pre = false;
  int threads = 1;
  double epsilon = 0;
  const int64_t* starts = nullptr;  // first real cell of each history; null: 0 for all
  const void *project = nullptr, *project_bias = nullptr;  // null: the inputs are the stream
  const void *gain = nullptr, *shift = nullptr;  // of the last norm, if norms precede the sublayers
  const void *output = nullptr, *output_bias = nullptr, *mix = nullptr, *mix_bias = nullptr;
  const void* x = nullptr;
  void* out = nullptr;
  const AdvanceBlock* blocks = nullptr;
  int64_t block_count = 0;
};

constexpr int64_t sums_align = 32;  // rows of summed gradients are padded to a multiple of this

// One result of a causal convolution over the last `taps` steps. Weights (channels, width, taps), dense.
struct ConvolvePart {
  int64_t channels = 0, taps = 0;
  const void *weight = nullptr, *bias = nullptr;
  void* out = nullptr;  // (batch, channels, length), dense
  const void* turned = nullptr;  // for gradients: weights as (width, channels, taps), taps in reverse order
  View grad;  // of out
};

// All convolutions of one x, which counts as zero before its start.
struct ConvolveProblem {
  Type type = Type::float32;
  int64_t batch = 0, length = 0, width = 0;
  int64_t kernel = 0;  // the most taps of any part
  View x;
  const int64_t* starts = nullptr;  // first real position of each batch row; null: 0 for all
  const ConvolvePart* parts = nullptr;
  int64_t part_count = 0;
  int threads = 1;
  void* grad_x = nullptr;  // (batch, length, width), dense
  const void *gain = nullptr, *shift = nullptr;  // of a norm of x before the convolutions; null: no norm
  double epsilon = 0;
  // Per thread, gradients of the weights of each part as (channels, taps, width) and of its biases, then of gain and
  // shift; zeros at the start.
  void* sums = nullptr;
  int64_t sums_size = 0;
};

// The part of a block after its attention. Weights are dense, as in torch: merge (width, inner), widen (wide, width),
// narrow (width, wide).
struct FeedForwardProblem {
  Type type = Type::float32;
  int64_t batch = 0, length = 0, width = 0, inner = 0, wide = 0;
  bool pre = false;  // norms precede the sublayers, so there is no last one
  double epsilon = 0;
  int threads = 1;
  View x, gathered, out, grad_out, grad_x, grad_gathered;
  View keep_merged, keep_fed;  // dropout factors; no data: no dropout
  const void *merge = nullptr, *merge_bias = nullptr, *widen = nullptr, *widen_bias = nullptr, *narrow = nullptr,
             *narrow_bias = nullptr, *first_gain = nullptr, *first_shift = nullptr, *last_gain = nullptr,
             *last_shift = nullptr;
  // Per thread, gradients: merge (inner, room), widen (wide, room), narrow (wide, room), then rows of `room`: merge
  // bias, narrow bias, first gain, first shift, last gain, last shift; then widen bias. Zeros at the start.
  void* sums = nullptr;
  int64_t sums_size = 0;
  int64_t width_room() const { return (width + sums_align - 1) / sums_align * sums_align; }
};

// Dropout factors: each is `factor` with probability `share`, otherwise 0.
struct KeepProblem {
  Type type = Type::float32;
  void* state = nullptr;  // of torch's generator
  void* out = nullptr;
  int64_t count = 0;
  double share = 1, factor = 1;
};

// Quantiles of the Student-t distribution at normal deviates of both signs. The logarithm of their ratio is a sum of
// Chebyshev polynomials in 1 / df, between `from` and `to`, and in the deviate, up to `farthest`, with (dfs, deviates)
// coefficients.
struct StudentTProblem {
  static constexpr int64_t most = 32;  // polynomials in the deviate
  int64_t count = 0;
  const double *deviate = nullptr, *df = nullptr;
  double* out = nullptr;
  const double* surface = nullptr;
  int64_t dfs = 0, deviates = 0;
  double from = 0, to = 0, farthest = 0;
};

#define LOGSPARSE_DECLARE(isa)                                              \
  namespace isa {                                                           \
  void forward(const Problem& problem);                                     \
  void backward(const Problem& problem);                                    \
  void step(const StepProblem& problem);                                    \
  void advance(const AdvanceProblem& problem);                              \
  void convolve(const ConvolveProblem& problem, bool with_gradient);        \
  void feed_forward(const FeedForwardProblem& problem, bool with_gradient); \
  void keep(const KeepProblem& problem);                                    \
  void student_t(const StudentTProblem& problem);                           \
  }
LOGSPARSE_DECLARE(baseline)
LOGSPARSE_DECLARE(avx2)
LOGSPARSE_DECLARE(avx512)

}  // namespace logsparse
