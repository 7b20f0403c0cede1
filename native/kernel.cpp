// Entry points of the kernel for one instruction set; CMake compiles this file once per set, as LOGSPARSE_ISA.
#include <cmath>

#include "advance.h"
#include "backward.h"
#include "convolve.h"
#include "dense.h"
#include "draws.h"
#include "feedforward.h"
#include "folded.h"
#include "quantile.h"
#include "step.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

template <template <class, class> class Work> void dispatch(const Problem& p) {
  switch (p.type) {
    case Type::float32: return run<Work<float, float>>(p);
    case Type::float64: return run<Work<double, double>>(p);
    case Type::bfloat16: return run<Work<bfloat16, float>>(p);
  }
}

template <class S, class T> using SparseForward = Forward<S, T, Sparse>;
template <class S, class T> using DenseForward = Forward<S, T, Dense>;

// Dense rows are a shorter problem of their own; the sparse pass skips them.
static Problem dense_part(Problem p) {
  p.length = p.dense_rows;
  return p;
}
static Problem sparse_part(Problem p) {
  p.first_row = p.dense_rows;
  return p;
}

static bool folds(const Problem& p) { return p.type == Type::float64 ? can_fold<double>(p) : can_fold<float>(p); }

void forward(const Problem& p) {
  if (p.dense_rows > 0) dispatch<DenseForward>(dense_part(p));
  if (p.dense_rows == p.length) return;
  const Problem sparse = sparse_part(p);
  folds(p) ? dispatch<FoldedForward>(sparse) : dispatch<SparseForward>(sparse);
}

void backward(const Problem& p) {
  if (p.dense_rows < p.length) {
    const bool own_heads = p.batch * p.heads >= p.threads;
    const Problem sparse = sparse_part(p);
    // Folded gradients read the result, which is rounded in bfloat16.
    folds(p) && own_heads&& p.type != Type::bfloat16 ? dispatch<FoldedBackward>(sparse) : dispatch<Backward>(sparse);
  }
  if (p.dense_rows == 0) return;
  Problem dense = dense_part(p);
  dense.accumulate = p.dense_rows < p.length;
  dispatch<DenseBackward>(dense);
}

template <template <class> class Work, class P> void run_typed(const P& p, bool backward) {
  p.type == Type::float64 ? run_layer<Work, double>(p, backward) : run_layer<Work, float>(p, backward);
}

void step(const StepProblem& p) { p.type == Type::float64 ? run_step<double>(p) : run_step<float>(p); }
void advance(const AdvanceProblem& p) { p.type == Type::float64 ? run_advance<double>(p) : run_advance<float>(p); }
void convolve(const ConvolveProblem& p, bool with_gradient) { run_typed<Convolve>(p, with_gradient); }
void feed_forward(const FeedForwardProblem& p, bool with_gradient) { run_typed<FeedForward>(p, with_gradient); }

void student_t(const StudentTProblem& p) { StudentT{p}.run(); }

void keep(const KeepProblem& p) {
  GeneratorState& state = *static_cast<GeneratorState*>(p.state);
  if (p.type == Type::float64)
    draw_kept(state, static_cast<double*>(p.out), p.count, p.share, p.factor);
  else
    draw_kept(state, static_cast<float*>(p.out), p.count, p.share, float(p.factor));
}

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
