// Rows that see their whole past: tiles of rows with blocks of keys, as plain matrix products. Each loaded number of a
// key serves a pair of vectors of rows, whereas distances of a pattern load both operands.
#pragma once
#include "forward.h"
#include "product.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

// Keys that row i of a tile sees in its own block: none after it, rounded up to the pair of vectors that i lies in.
template <class T> LOGSPARSE_INLINE int64_t own_keys(int64_t i) { return i / pair<T> * pair<T> + pair<T>; }

// out[j][i] = key j of block kb times row i of block b, summed over channels; entries above the diagonal are not
// written.
template <class T> void block_dots(T* out, const T* rows, const T* keys, int64_t width, bool diagonal) {
  std::memset(out, 0, tile * tile * sizeof(T));
  for (int64_t j = 0; j < tile; j += diagonal ? pair<T> : tile) {
    const int64_t from = diagonal ? j : 0;
    multiply(out + j * tile + from, tile, diagonal ? pair<T> : tile, tile - from,
             Factors<T>{keys + j, row_stride<T>, 1}, Terms<T>{rows + from, width, row_stride<T>, 1});
  }
}

// sum[c][i] += sum over keys j of weight[j][i] * keys[c][j]; with `diagonal`, only keys up to the row's own.
template <class T> void block_combine(T* sum, const T* weights, const T* keys, int64_t width, bool diagonal) {
  for (int64_t i = 0; i < tile; i += diagonal ? pair<T> : tile)
    multiply(sum + i, row_stride<T>, width, diagonal ? pair<T> : tile, Factors<T>{keys, 1, row_stride<T>},
             Terms<T>{weights + i, diagonal ? own_keys<T>(i) : tile, tile, 1});
}

// All cells before a tile of rows, a block of keys at a time; m counts keys of the block.
template <class T> struct Dense {
  static constexpr int chunk = tile;
  const int64_t b;
  int64_t kb = 0;

  Dense(const Problem&, const Span&, int64_t block) : b(block) {}
  bool left() const { return kb <= b; }
  bool first() const { return kb == 0; }
  void next() { ++kb; }

  void dots(T* scores, const T* queries, const Packed<T>& k) const {
    block_dots(scores, queries, k.block(kb), k.width, kb == b);
  }
  void combine(T* sum, const Packed<T>& v, const T* weights) const {
    block_combine(sum, weights, v.block(kb), v.width, kb == b);
  }

  LOGSPARSE_INLINE int64_t count_at(int i) const { return kb == b ? own_keys<T>(i) : tile; }
  LOGSPARSE_INLINE bool is_partial(int64_t m, int i) const { return kb == b && m > i; }
  LOGSPARSE_INLINE Mask<T> inside(int64_t m, int i) const { return iota<T>(T(i)) >= all<T>(T(m)); }
  LOGSPARSE_INLINE Vec<T> stays(const Dropout<T>& dropout, int64_t m, int i) const {
    return dropout.factors(b * tile + i, (b - kb) * tile + i - m, 1);
  }
};

// Gradients: weights and score gradients of a pair of blocks, rows b and keys kb, are recomputed; rows sum theirs over
// keys, keys over rows. A thread with a head of its own does both for each pair; threads that share a head do rows in
// one phase and keys in the next.
template <class S, class T> struct DenseBackward : HeadPass<T> {
  using HeadPass<T>::p;
  using HeadPass<T>::span;
  using HeadPass<T>::dropout;
  static constexpr int phases = 2;
  static constexpr T never = T(1e30);  // log-sum-exp of a missing row: its weights become exactly 0
  // The result was rounded to a narrower type: means are recomputed from the cells.
  static constexpr bool rounded = sizeof(S) < sizeof(T);
  Packed<T> q, k, v, grad, grad_q, sum_q, sum_k, sum_v;
  T *lse, *delta, *weights, *slopes, *turned;
  const T scale;

  DenseBackward(const Problem& problem, Pieces& shared, Pieces& own)
      : HeadPass<T>(problem), scale(T(1 / __builtin_sqrt(double(p.width)))) {
    const int64_t blocks = (p.length + tile - 1) / tile;
    for (Packed<T>* packed : {&q, &k, &grad_q}) *packed = Packed<T>::take(shared, blocks, p.width);
    for (Packed<T>* packed : {&v, &grad}) *packed = Packed<T>::take(shared, blocks, p.value_width);
    lse = shared.take<T>(blocks * tile), delta = shared.take<T>(blocks * tile);
    for (Packed<T>* packed : {&sum_q, &sum_k}) *packed = Packed<T>::take(own, 1, p.width);
    sum_v = Packed<T>::take(own, 1, p.value_width);
    weights = own.take<T>(tile * tile), slopes = own.take<T>(tile * tile), turned = own.take<T>(tile * tile);
  }

  void ready(int64_t head, bool differs) {
    if (differs) {
      for (const Packed<T>& packed : {q, k, v, grad}) clear_ends(packed, span.blocks);
      for (int64_t i = 0; i < span.blocks * tile; ++i) lse[i] = never, delta[i] = 0;
    }
    if (p.accumulate) return;
    this->template clear_gradients<S>(head, span.begin);
  }

  void prepare(int64_t head, int64_t b, int64_t end) {
    this->template pack_inputs<S>(q, k, v, head, b, end, T(scale * log2_e));
    const Head<S> grads(p.grad_out, p, head, span.begin), outs(p.out, p, head, span.begin);
    pack(grad, b, end, grads, 0, span.length, T(1));
    const T* const kept = this->lse_of(head);
    const int64_t last = end * tile < span.length ? end * tile : span.length;
    for (int64_t l = b * tile; l < last; ++l) lse[l] = kept[l], delta[l] = 0;
    if (rounded) return;
    // Weighted mean of the score gradients of a row: its result times the gradient of its result.
    for (int64_t c = 0; c < p.value_width; ++c)
      for (int64_t l = b * tile; l < last; ++l)
        delta[l] += T(widen(outs.data[l * outs.row + c * outs.channel])) *
                    T(widen(grads.data[l * grads.row + c * grads.channel]));
  }

  void whole(int64_t head) {
    for (int64_t b = 0; b < span.blocks; b += stretch)
      prepare(head, b, b + stretch < span.blocks ? b + stretch : span.blocks);
    std::memset(grad_q.block(0), 0, span.blocks * grad_q.block_size() * sizeof(T));
    for (int64_t b = 0; rounded && b < span.blocks; ++b) mean_slopes(b);
    for (int64_t kb = 0; kb < span.blocks; ++kb) {
      clear_keys();
      for (int64_t b = kb; b < span.blocks; ++b) {
        weigh(b, kb);
        block_combine(grad_q.block(b), slopes, k.block(kb), p.width, b == kb);
        gather_keys(b);
      }
      write_keys(head, kb);
    }
    for (int64_t b = 0; b < span.blocks; ++b) write(grad_q.block(b), p.grad_q, p.width, head, b, scale);
  }

  void phase(int n, int64_t head, int64_t block) {
    if (n == 0) {
      if (rounded) mean_slopes(block);
      std::memset(sum_q.block(0), 0, sum_q.block_size() * sizeof(T));
      for (int64_t kb = 0; kb <= block; ++kb) {
        weigh(block, kb);
        block_combine(sum_q.block(0), slopes, k.block(kb), p.width, block == kb);
      }
      write(sum_q.block(0), p.grad_q, p.width, head, block, scale);
    } else {
      clear_keys();
      for (int64_t b = block; b < span.blocks; ++b) weigh(b, block), gather_keys(b);
      write_keys(head, block);
    }
  }

  // weights[j][i] and slopes[j][i] of keys j of block kb and rows i of block b: cell weights, and gradients of scores.
  void weigh(int64_t b, int64_t kb) {
    const bool diagonal = b == kb;
    block_dots(weights, q.block(b), k.block(kb), p.width, diagonal);
    block_dots(slopes, grad.block(b), v.block(kb), p.value_width, diagonal);
    const Dense<T> cells = at(b, kb);
    for (int i = 0; i < tile; i += lanes<T>) {
      const Vec<T> top = load(lse + b * tile + i), mean = load(delta + b * tile + i);
      for (int64_t m = 0; m < cells.count_at(i); ++m) {
        Vec<T> weight = exp2<T>(load(weights + m * tile + i) - top), slope = load(slopes + m * tile + i);
        if (cells.is_partial(m, i)) {
          const Mask<T> inside = cells.inside(m, i);
          weight = inside ? weight : Vec<T>{}, slope = inside ? slope : Vec<T>{};
        }
        const Vec<T> stays = dropout.on ? cells.stays(dropout, m, i) : all<T>(1);
        store(slopes + m * tile + i, weight * (slope * stays - mean));
        store(weights + m * tile + i, weight * stays);
      }
      // Nothing is seen above the diagonal of a block, but keys read it.
      for (int64_t m = cells.count_at(i); m < tile; ++m)
        store(slopes + m * tile + i, Vec<T>{}), store(weights + m * tile + i, Vec<T>{});
    }
  }

  // Computes delta of the rows of a block from its cells: with a delta of 0, the slopes sum up to it.
  void mean_slopes(int64_t b) {
    Vec<T> sums[tile / lanes<T>] = {};
    for (int64_t kb = 0; kb <= b; ++kb) {
      weigh(b, kb);
      for (int64_t m = 0; m < tile; ++m)
        for (int i = 0; i < tile; i += lanes<T>) sums[i / lanes<T>] += load(slopes + m * tile + i);
    }
    for (int i = 0; i < tile; i += lanes<T>) store(delta + b * tile + i, sums[i / lanes<T>]);
  }

  static Dense<T> at(int64_t b, int64_t kb) {
    Dense<T> cells(Problem(), Span(), b);
    cells.kb = kb;
    return cells;
  }

  void gather_keys(int64_t b) {
    turn(slopes, tile, turned, tile, tile, tile);
    block_combine(sum_k.block(0), turned, q.block(b), p.width, false);
    turn(weights, tile, turned, tile, tile, tile);
    block_combine(sum_v.block(0), turned, grad.block(b), p.value_width, false);
  }

  void clear_keys() {
    std::memset(sum_k.block(0), 0, sum_k.block_size() * sizeof(T));
    std::memset(sum_v.block(0), 0, sum_v.block_size() * sizeof(T));
  }

  void write_keys(int64_t head, int64_t kb) {
    write(sum_k.block(0), p.grad_k, p.width, head, kb, T(ln_2));  // q was packed times log2(e)
    write(sum_v.block(0), p.grad_v, p.value_width, head, kb, T(1));
  }

  void write(const T* block, const View& view, int64_t width, int64_t head, int64_t b, T factor) {
    const int64_t hi = span.length - b * tile < tile ? span.length - b * tile : tile;
    unpack(block, width, Head<S>(view, p, head, span.begin), b * tile, 0, hi, factor, p.accumulate);
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
