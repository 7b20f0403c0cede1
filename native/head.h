// What all passes over a head share, whichever cells they see.
#pragma once
#include "dropout.h"
#include "packed.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

constexpr double log2_e = 1.4426950408889634074, ln_2 = 0.693147180559945309417;

// The sequence of one head: positions from the start of its batch row on, counted from there. A pattern depends on
// distances only, so padding on the left leaves a shorter problem of the same kind; padding is never read.
struct Span {
  int64_t begin = 0;      // where it starts in memory
  int64_t length = -1;
  int64_t first_row = 0;  // the first row to compute
  int64_t blocks = 0;
  Span() = default;
  Span(const Problem& p, int64_t head) {
    const int64_t start = p.starts == nullptr ? 0 : p.starts[head / p.heads];
    begin = start < p.length ? start : p.length, length = p.length - begin;
    first_row = p.first_row > begin ? p.first_row - begin : 0;
    blocks = (length + tile - 1) / tile;
  }
  bool operator==(const Span& other) const { return begin == other.begin && length == other.length; }
};

template <class T> struct HeadPass {
  const Problem& p;
  Dropout<T> dropout;
  Span span;

  explicit HeadPass(const Problem& problem) : p(problem), dropout(problem.dropout) {}

  // Returns true if the span differs from that of the previous head.
  bool enter(int64_t head) {
    const Span last = span;
    span = Span(p, head);
    dropout.enter(p.seed, head / p.heads, head % p.heads, span.begin);
    return !(span == last);
  }

  // Log-sum-exp of the rows of the span.
  T* lse_of(int64_t head) const { return static_cast<T*>(p.lse) + head * p.lse_head + span.begin; }

  // Blocks [b, end) of the head's q, times `factor`, k and v.
  template <class S>
  void pack_inputs(const Packed<T>& q, const Packed<T>& k, const Packed<T>& v, int64_t head, int64_t b, int64_t end,
                   T factor) const {
    pack(q, b, end, Head<S>(p.q, p, head, span.begin), 0, span.length, factor);
    pack(k, b, end, Head<S>(p.k, p, head, span.begin), 0, span.length, T(1));
    pack(v, b, end, Head<S>(p.v, p, head, span.begin), 0, span.length, T(1));
  }

  // Zeros for the padded rows of the result and of its log-sum-exp.
  template <class S> void clear_padding(int64_t head) const {
    if (span.begin <= p.first_row) return;
    clear_rows(Head<S>(p.out, p, head, p.first_row), p.value_width, span.begin - p.first_row);
    std::memset(lse_of(head) + p.first_row - span.begin, 0, (span.begin - p.first_row) * sizeof(T));
  }

  // Zeros for the first `query_rows` rows of the gradient of q, and for the padded rows of those of k and v.
  template <class S> void clear_gradients(int64_t head, int64_t query_rows) const {
    clear_rows(Head<S>(p.grad_q, p, head, 0), p.width, query_rows);
    clear_rows(Head<S>(p.grad_k, p, head, 0), p.width, span.begin);
    clear_rows(Head<S>(p.grad_v, p, head, 0), p.value_width, span.begin);
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
