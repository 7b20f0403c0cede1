// Binding: plain integers from Python (addresses, strides, sizes) -> a Problem -> the best kernel for this processor.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "counts.h"
#include "pages.h"
#include "problem.h"

namespace nb = nanobind;
using namespace logsparse;

// (address, batch stride, head stride, row stride, channel stride)
typedef std::array<int64_t, 5> Tensor;
// (type, batch, heads, length, width, value width, dense rows, threads)
typedef std::array<int64_t, 8> Sizes;
typedef std::vector<int64_t> Distances;

struct Level {
  const char* name;
  void (*forward)(const Problem&);
  void (*backward)(const Problem&);
  void (*step)(const StepProblem&);
  void (*advance)(const AdvanceProblem&);
  void (*convolve)(const ConvolveProblem&, bool);
  void (*feed_forward)(const FeedForwardProblem&, bool);
  void (*keep)(const KeepProblem&);
  void (*student_t)(const StudentTProblem&);
};

static std::vector<Level> levels() {
  std::vector<Level> found{{"baseline", baseline::forward, baseline::backward, baseline::step, baseline::advance,
                            baseline::convolve, baseline::feed_forward, baseline::keep, baseline::student_t}};
#ifdef LOGSPARSE_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    found.push_back({"avx2", avx2::forward, avx2::backward, avx2::step, avx2::advance, avx2::convolve,
                     avx2::feed_forward, avx2::keep, avx2::student_t});
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw"))
      found.push_back({"avx512", avx512::forward, avx512::backward, avx512::step, avx512::advance, avx512::convolve,
                       avx512::feed_forward, avx512::keep, avx512::student_t});
  }
#endif
  return found;
}

static const std::vector<Level> available = levels();
static Level chosen = available.back();

static View view(const Tensor& t) { return {reinterpret_cast<void*>(t[0]), t[1], t[2], t[3], t[4]}; }

// A newly allocated, dense result.
static View fresh(const Tensor& t, const Problem& p, int64_t rows, int64_t channels) {
  const int64_t bytes = p.type == Type::float64 ? 8 : p.type == Type::float32 ? 4 : 2;
  ask_for_large_pages(reinterpret_cast<void*>(t[0]), size_t(p.batch * p.heads * rows * channels * bytes));
  return view(t);
}

static Problem problem(const std::vector<Tensor>& tensors, const Sizes& sizes, const Distances& distances, int64_t lse,
                       int64_t starts, uint64_t seed, double dropout) {
  Problem p;
  p.type = static_cast<Type>(sizes[0]);
  p.batch = sizes[1], p.heads = sizes[2], p.length = sizes[3], p.width = sizes[4], p.value_width = sizes[5];
  p.dense_rows = sizes[6], p.lse_head = p.length, p.threads = sizes[7] > 0 ? int(sizes[7]) : 1;
  p.distances = distances.data(), p.distance_count = int64_t(distances.size());
  p.lse = reinterpret_cast<void*>(lse), p.starts = reinterpret_cast<const int64_t*>(starts);
  p.seed = seed, p.dropout = dropout;
  p.q = view(tensors[0]), p.k = view(tensors[1]), p.v = view(tensors[2]);
  return p;
}

static void forward(const std::array<Tensor, 4>& tensors, const Sizes& sizes, const Distances& distances, int64_t lse,
                    int64_t starts, uint64_t seed, double dropout) {
  Problem p = problem({tensors.begin(), tensors.end()}, sizes, distances, lse, starts, seed, dropout);
  p.out = fresh(tensors[3], p, p.length, p.value_width);
  nb::gil_scoped_release release;
  chosen.forward(p);
}

static void backward(const std::array<Tensor, 8>& tensors, const Sizes& sizes, const Distances& distances, int64_t lse,
                     int64_t starts, uint64_t seed, double dropout) {
  Problem p = problem({tensors.begin(), tensors.end()}, sizes, distances, lse, starts, seed, dropout);
  p.out = view(tensors[3]), p.grad_out = view(tensors[4]);
  p.grad_q = fresh(tensors[5], p, p.length, p.width), p.grad_k = fresh(tensors[6], p, p.length, p.width);
  p.grad_v = fresh(tensors[7], p, p.length, p.value_width);
  nb::gil_scoped_release release;
  chosen.backward(p);
}

// Addresses of the history's k and v, the steps' k and v, out, and starts (or 0); (type, series, paths, heads, width,
// value width, history, step room, threads).
static void step(const Tensor& q, const std::array<int64_t, 6>& dense, const std::array<int64_t, 9>& sizes,
                 const Distances& old_cells, const Distances& new_cells) {
  StepProblem p;
  p.type = static_cast<Type>(sizes[0]);
  p.series = sizes[1], p.paths = sizes[2], p.heads = sizes[3], p.width = sizes[4], p.value_width = sizes[5];
  p.history = sizes[6], p.step_room = sizes[7], p.threads = sizes[8] > 0 ? int(sizes[8]) : 1;
  p.old_cells = old_cells.data(), p.old_count = int64_t(old_cells.size());
  p.new_cells = new_cells.data(), p.new_count = int64_t(new_cells.size());
  p.q = view(q);
  const void** const places[] = {&p.history_k, &p.history_v, &p.steps_k, &p.steps_v};
  for (int i = 0; i < 4; ++i) *places[i] = reinterpret_cast<const void*>(dense[i]);
  p.out = reinterpret_cast<void*>(dense[4]), p.starts = reinterpret_cast<const int64_t*>(dense[5]);
  nb::gil_scoped_release release;
  chosen.step(p);
}

// Sizes in the order of AdvanceProblem from type to threads; whole: addresses of starts, projection, last norm, output,
// mix, x and out; a block: addresses in the order of AdvanceBlock; 0 if absent.
static void advance(const std::array<int64_t, 16>& sizes, double epsilon, const std::array<int64_t, 11>& whole,
                    const std::vector<std::array<int64_t, 21>>& given,
                    const std::vector<std::pair<Distances, Distances>>& cells) {
  AdvanceProblem p;
  p.type = static_cast<Type>(sizes[0]);
  int64_t* const places[] = {&p.series, &p.paths,   &p.inputs,    &p.width, &p.heads,      &p.head_width, &p.wide,
                             &p.kernel, &p.history, &p.step_room, &p.step,  &p.parameters, &p.anchors,    &p.seen_from};
  for (int i = 0; i < 14; ++i) *places[i] = sizes[i + 1];
  p.pre = whole[3] != 0, p.threads = sizes[15] > 0 ? int(sizes[15]) : 1, p.epsilon = epsilon;
  p.starts = reinterpret_cast<const int64_t*>(whole[0]);
  const void** const parts[] = {&p.project,     &p.project_bias, &p.gain,     &p.shift, &p.output,
                                &p.output_bias, &p.mix,          &p.mix_bias, &p.x};
  for (int i = 0; i < 9; ++i) *parts[i] = reinterpret_cast<const void*>(whole[i + 1]);
  p.out = reinterpret_cast<void*>(whole[10]);
  std::vector<AdvanceBlock> blocks(given.size());
  for (size_t n = 0; n < given.size(); ++n) {
    AdvanceBlock& b = blocks[n];
    const void** const weights[] = {
        &b.query,          &b.query_bias,      &b.key,       &b.key_bias,   &b.value,     &b.value_bias,
        &b.merge,          &b.merge_bias,      &b.widen,     &b.widen_bias, &b.narrow,    &b.narrow_bias,
        &b.attention_gain, &b.attention_shift, &b.feed_gain, &b.feed_shift, &b.history_k, &b.history_v};
    for (int i = 0; i < 18; ++i) *weights[i] = reinterpret_cast<const void*>(given[n][i]);
    void** const memory[] = {&b.seen, &b.steps_k, &b.steps_v};
    for (int i = 0; i < 3; ++i) *memory[i] = reinterpret_cast<void*>(given[n][i + 18]);
    const auto& [old_cells, new_cells] = cells[n];
    b.old_cells = old_cells.data(), b.old_count = int64_t(old_cells.size());
    b.new_cells = new_cells.data(), b.new_count = int64_t(new_cells.size());
  }
  p.blocks = blocks.data(), p.block_count = int64_t(blocks.size());
  nb::gil_scoped_release release;
  chosen.advance(p);
}

// x: (address, batch stride, row stride, channel stride); sizes: (type, batch, length, width, threads). A part:
// (channels, taps, address of weights, of biases, of out), norm: addresses of gain and shift, or 0; or for gradients
// (channels, taps, address of turned weights, then of the gradient with its batch, channel and row stride).
static ConvolveProblem convolution(const std::array<int64_t, 4>& x, const std::array<int64_t, 5>& sizes, int64_t starts,
                                   const std::array<int64_t, 2>& norm, double epsilon) {
  ConvolveProblem p;
  p.gain = reinterpret_cast<const void*>(norm[0]), p.shift = reinterpret_cast<const void*>(norm[1]),
  p.epsilon = epsilon;
  p.type = static_cast<Type>(sizes[0]);
  p.batch = sizes[1], p.length = sizes[2], p.width = sizes[3], p.threads = sizes[4] > 0 ? int(sizes[4]) : 1;
  p.x = {reinterpret_cast<void*>(x[0]), x[1], 0, x[2], x[3]};
  p.starts = reinterpret_cast<const int64_t*>(starts);
  return p;
}

static void convolve(const std::array<int64_t, 4>& x, const std::array<int64_t, 5>& sizes, int64_t starts,
                     const std::array<int64_t, 2>& norm, double epsilon,
                     const std::vector<std::array<int64_t, 5>>& given) {
  ConvolveProblem p = convolution(x, sizes, starts, norm, epsilon);
  std::vector<ConvolvePart> parts(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    parts[i].channels = given[i][0], parts[i].taps = given[i][1];
    parts[i].weight = reinterpret_cast<const void*>(given[i][2]),
    parts[i].bias = reinterpret_cast<const void*>(given[i][3]);
    parts[i].out = reinterpret_cast<void*>(given[i][4]);
    p.kernel = std::max(p.kernel, parts[i].taps);
  }
  p.parts = parts.data(), p.part_count = int64_t(parts.size());
  nb::gil_scoped_release release;
  chosen.convolve(p, false);
}

static void convolve_backward(const std::array<int64_t, 4>& x, const std::array<int64_t, 5>& sizes, int64_t starts,
                              const std::array<int64_t, 2>& norm, double epsilon,
                              const std::vector<std::array<int64_t, 7>>& given, int64_t grad_x, int64_t sums,
                              int64_t sums_size) {
  ConvolveProblem p = convolution(x, sizes, starts, norm, epsilon);
  std::vector<ConvolvePart> parts(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    parts[i].channels = given[i][0], parts[i].taps = given[i][1];
    parts[i].turned = reinterpret_cast<const void*>(given[i][2]);
    parts[i].grad = {reinterpret_cast<void*>(given[i][3]), given[i][4], 0, given[i][6], given[i][5]};
    p.kernel = std::max(p.kernel, parts[i].taps);
  }
  p.parts = parts.data(), p.part_count = int64_t(parts.size());
  p.grad_x = reinterpret_cast<void*>(grad_x), p.sums = reinterpret_cast<void*>(sums), p.sums_size = sums_size;
  nb::gil_scoped_release release;
  chosen.convolve(p, true);
}

// Tensors (address, batch stride, row stride, channel stride): x, gathered, keep_merged, keep_fed, out; for gradients
// grad_out, grad_x, grad_gathered instead of out. Weights in the order of FeedForwardProblem; sizes: (type, batch,
// length, width, inner, wide, pre, threads).
static void feed_forward(const std::vector<std::array<int64_t, 4>>& tensors, const std::array<int64_t, 10>& weights,
                         const std::array<int64_t, 8>& sizes, double epsilon, int64_t sums, int64_t sums_size) {
  FeedForwardProblem p;
  p.type = static_cast<Type>(sizes[0]);
  p.batch = sizes[1], p.length = sizes[2], p.width = sizes[3], p.inner = sizes[4], p.wide = sizes[5];
  p.pre = sizes[6] != 0, p.threads = sizes[7] > 0 ? int(sizes[7]) : 1, p.epsilon = epsilon;
  const bool gradient = tensors.size() > 5;
  View* const places[] = {&p.x,      &p.gathered,     &p.keep_merged, &p.keep_fed, gradient ? &p.grad_out : &p.out,
                          &p.grad_x, &p.grad_gathered};
  for (size_t i = 0; i < tensors.size(); ++i)
    *places[i] = {reinterpret_cast<void*>(tensors[i][0]), tensors[i][1], 0, tensors[i][2], tensors[i][3]};
  const void** const parts[] = {&p.merge,       &p.merge_bias, &p.widen,       &p.widen_bias, &p.narrow,
                                &p.narrow_bias, &p.first_gain, &p.first_shift, &p.last_gain,  &p.last_shift};
  for (size_t i = 0; i < weights.size(); ++i) *parts[i] = reinterpret_cast<const void*>(weights[i]);
  p.sums = reinterpret_cast<void*>(sums), p.sums_size = sums_size;
  nb::gil_scoped_release release;
  chosen.feed_forward(p, gradient);
}

static void keep(int64_t type, int64_t state, int64_t out, int64_t count, double share, double factor) {
  const KeepProblem p{
      static_cast<Type>(type), reinterpret_cast<void*>(state), reinterpret_cast<void*>(out), count, share, factor};
  nb::gil_scoped_release release;
  chosen.keep(p);
}

// Addresses of deviates, degrees of freedom, results and surface; bounds: from, to, farthest.
static void student_t(int64_t count, const std::array<int64_t, 4>& dense, const std::array<int64_t, 2>& polynomials,
                      const std::array<double, 3>& bounds) {
  if (polynomials[1] > StudentTProblem::most) throw std::invalid_argument("too many polynomials");
  const auto at = [&](int i) { return reinterpret_cast<double*>(dense[i]); };
  const StudentTProblem p{count,          at(0),          at(1),     at(2),     at(3),
                          polynomials[0], polynomials[1], bounds[0], bounds[1], bounds[2]};
  nb::gil_scoped_release release;
  chosen.student_t(p);
}

// Addresses of levels, means, 1 / dispersions and results; bounds: small, lopsided.
static void counts(int64_t count, const std::array<int64_t, 4>& dense, const std::array<double, 2>& bounds,
                   int64_t threads) {
  const auto at = [&](int i) { return reinterpret_cast<double*>(dense[i]); };
  const CountsProblem p{count, at(0), at(1), at(2), at(3), bounds[0], bounds[1], int(std::max<int64_t>(1, threads))};
  nb::gil_scoped_release release;
  find_counts(p);
}

static void use(const std::string& name) {
  for (const Level& level : available)
    if (name == level.name) {
      chosen = level;
      return;
    }
  throw std::invalid_argument("unknown instruction set: " + name);
}

NB_MODULE(_native, m) {
  m.doc() = "CPU kernel of logsparse: fills memory given by addresses and strides, for logsparse.attention.native.";
  m.def("forward", &forward, nb::arg("tensors"), nb::arg("sizes"), nb::arg("distances"), nb::arg("lse"),
        nb::arg("starts"), nb::arg("seed"), nb::arg("dropout"), "Fill out (the fourth tensor) and lse from q, k, v.");
  m.def("backward", &backward, nb::arg("tensors"), nb::arg("sizes"), nb::arg("distances"), nb::arg("lse"),
        nb::arg("starts"), nb::arg("seed"), nb::arg("dropout"),
        "Fill the gradients (the last three tensors) from q, k, v, out, grad_out and lse.");
  m.def("step", &step, nb::arg("q"), nb::arg("dense"), nb::arg("sizes"), nb::arg("old_cells"), nb::arg("new_cells"),
        "Fill out (the fifth dense address) from q and the keys and values of history and steps.");
  m.def("advance", &advance, nb::arg("sizes"), nb::arg("epsilon"), nb::arg("whole"), nb::arg("blocks"),
        nb::arg("cells"),
        "Fill out from the inputs of one more position of every path; updates the memory of the blocks.");
  m.def("convolve", &convolve, nb::arg("x"), nb::arg("sizes"), nb::arg("starts"), nb::arg("norm"), nb::arg("epsilon"),
        nb::arg("parts"), "Fill out of each part with a causal convolution of x.");
  m.def("convolve_backward", &convolve_backward, nb::arg("x"), nb::arg("sizes"), nb::arg("starts"), nb::arg("norm"),
        nb::arg("epsilon"), nb::arg("parts"), nb::arg("grad_x"), nb::arg("sums"), nb::arg("sums_size"),
        "Fill grad_x, and add to sums, from each part's gradient.");
  m.def("feed_forward", &feed_forward, nb::arg("tensors"), nb::arg("weights"), nb::arg("sizes"), nb::arg("epsilon"),
        nb::arg("sums"), nb::arg("sums_size"),
        "Fill out (the fifth tensor), or grad_x and grad_gathered from grad_out, and add to sums.");
  m.def("keep", &keep, nb::arg("type"), nb::arg("state"), nb::arg("out"), nb::arg("count"), nb::arg("share"),
        nb::arg("factor"), "Fill out with dropout factors; advances the state of torch's generator.");
  m.def("student_t", &student_t, nb::arg("count"), nb::arg("dense"), nb::arg("polynomials"), nb::arg("bounds"),
        "Fill the third dense address with quantiles at the deviates.");
  m.def("counts", &counts, nb::arg("count"), nb::arg("dense"), nb::arg("bounds"), nb::arg("threads"),
        "Fill the fourth dense address with quantiles of counts, -1 where they are not found by summing.");
  m.def(
      "levels",
      [] {
        std::vector<std::string> names;
        for (const Level& level : available) names.emplace_back(level.name);
        return names;
      },
      "Instruction sets that this processor runs, best last.");
  m.def("level", [] { return std::string(chosen.name); }, "The instruction set in use.");
  m.def("use", &use, nb::arg("name"), "Select an instruction set, for tests and benchmarks.");
}
