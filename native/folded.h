// q, k, v -> out and log-sum-exp, and with the gradient of out -> gradients of q, k, v, over a pattern that repeats:
// vectors of residues, blocks of rows, pieces of keys (fold.h). The backward pass needs a head per thread.
#pragma once
#include <type_traits>

#include "fold.h"
#include "scratch.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

// Lanes [lo, hi) of sum[c] * factor go to rows position + lo ... of the target.
template <class S, class T>
void write_lanes(const T* sum, int64_t width, const Head<S>& target, int64_t position, int64_t lo, int64_t hi,
                 Vec<T> factor) {
  constexpr int w = lanes<T>;
  S* const first = target.data + position * target.row;
  int64_t c = 0;
  if constexpr (std::is_same_v<S, T>) {
    if (target.row == 1 && lo == 0 && hi == w)
      for (; c < width; ++c) store(first + c * target.channel, load(sum + c * w) * factor);
    if (target.channel == 1 && target.row != 1)
      for (; c + w <= width; c += w) {
        Vec<T> x[w];
#pragma GCC unroll 16
        for (int i = 0; i < w; ++i) x[i] = load(sum + (c + i) * w) * factor;
        transpose<T>(x);
#pragma GCC unroll 16
        for (int i = 0; i < w; ++i)
          if (i >= lo && i < hi) store(first + i * target.row + c, x[i]);
      }
  }
  for (; c < width; ++c) {
    T lane[w];
    store(lane, load(sum + c * w) * factor);
    for (int64_t i = lo; i < hi; ++i) narrow(lane[i], first + i * target.row + c * target.channel);
  }
}

template <class S, class T> struct FoldedForward : Fold<T> {
  using Fold<T>::p;
  using Fold<T>::span;
  using Fold<T>::dropout;
  using Fold<T>::w;
  using Fold<T>::rows;
  static constexpr int phases = 1;
  static constexpr T lowest = T(-1e30);  // running maximum of a row before its first cell; finite
  Packed<T> q, k, v;
  T *row, *scores, *sum, *maximum, *total;
  const T scale;

  FoldedForward(const Problem& problem, Pieces& shared, Pieces& own)
      : Fold<T>(problem, own), scale(T(log2_e / __builtin_sqrt(double(p.width)))) {
    const int64_t blocks = (p.length + tile - 1) / tile;
    for (Packed<T>* packed : {&q, &k}) *packed = Packed<T>::take(shared, blocks, p.width);
    v = Packed<T>::take(shared, blocks, p.value_width);
    row = own.take<T>(fold_rows * p.width * w), sum = own.take<T>(fold_rows * p.value_width * w);
    scores = own.take<T>(this->room());
    maximum = own.take<T>(fold_rows * w), total = own.take<T>(fold_rows * w);
  }

  void ready(int64_t head, bool differs) {
    if (differs)
      for (const Packed<T>& packed : {q, k, v}) clear_ends(packed, span.blocks);
    this->template clear_padding<S>(head);
  }

  void prepare(int64_t head, int64_t b, int64_t end) { this->template pack_inputs<S>(q, k, v, head, b, end, scale); }

  void whole(int64_t head) {
    prepare(head, 0, span.blocks);
    for (int64_t i = 0; i < this->vectors(); ++i) vector_of(head, i);
  }

  // Threads that share a head divide its vectors of residues, not its blocks.
  void phase(int, int64_t head, int64_t b) {
    for (int64_t i = b; i < this->vectors(); i += span.blocks) vector_of(head, i);
  }

  void vector_of(int64_t head, int64_t i) {
    this->residue = i * w;
    this->each_block([&] {
      this->copy_rows(row, q);
      std::memset(sum, 0, rows * p.value_width * w * sizeof(T));
      for (int64_t n = 0; n < rows * w; ++n) maximum[n] = lowest, total[n] = 0;
      this->each_piece(k.block_size(), v.block_size(), [&] {
        this->dots(scores, row, k, this->width_offsets);
        softmax();
        this->combine(sum, scores, v, this->value_offsets);
      });
      finish(head);
    });
  }

  // Turns the scores of a piece into weights relative to the running maximum; rescales the sums so far.
  void softmax() {
    for (int64_t r = 0; r < rows; ++r) {
      const Vec<T> before = load(maximum + r * w);
      Vec<T> top = before;
      this->each_cell(r, [&](int64_t at, int64_t m, int64_t, bool partial) {
        Vec<T> score = load(scores + at);
        if (partial) store(scores + at, score = this->inside(m) ? score : all<T>(-INFINITY));
        top = larger<T>(top, score);
      });
      const Vec<T> shrink = exp2<T>(before - top);
      Vec<T> weights = load(total + r * w) * shrink;
      this->each_cell(r, [&](int64_t at, int64_t m, int64_t n, bool) {
        const Vec<T> weight = exp2<T>(load(scores + at) - top);
        weights += weight;
        store(scores + at, dropout.on ? weight * this->stays(m, n, r) : weight);
      });
      store(maximum + r * w, top), store(total + r * w, weights);
      if (this->from == 0) continue;
      T* const sums = sum + r * p.value_width * w;
      for (int64_t c = 0; c < p.value_width * w; c += w) store(sums + c, load(sums + c) * shrink);
    }
  }

  void finish(int64_t head) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t position = this->position(r), hi = this->lanes_of(r);
      const int64_t lo = span.first_row > position ? span.first_row - position : 0;
      const Vec<T> weights = load(total + r * w);
      store(maximum + r * w, load(maximum + r * w) + log2<T>(weights));
      write_lanes(sum + r * p.value_width * w, p.value_width, Head<S>(p.out, p, head, span.begin), position, lo, hi,
                  T(1) / weights);
      for (int64_t i = lo; i < hi; ++i) this->lse_of(head)[position + i] = maximum[r * w + i];
    }
  }
};

// Each thread has a head of its own: gradients of keys are accumulated in place, vector by vector.
template <class S, class T> struct FoldedBackward : Fold<T> {
  using Fold<T>::p;
  using Fold<T>::span;
  using Fold<T>::dropout;
  using Fold<T>::w;
  using Fold<T>::rows;
  static constexpr int phases = 0;
  static constexpr T never = T(1e30);  // log-sum-exp of a row outside this pass: its weights become exactly 0
  Packed<T> q, k, v, grad, sum_k, sum_v;
  T *lse, *delta, *row, *grad_row, *weights, *slopes, *sum_q;
  const T scale;

  FoldedBackward(const Problem& problem, Pieces& shared, Pieces& own)
      : Fold<T>(problem, own), scale(T(1 / __builtin_sqrt(double(p.width)))) {
    const int64_t blocks = (p.length + tile - 1) / tile;
    for (Packed<T>* packed : {&q, &k, &sum_k}) *packed = Packed<T>::take(shared, blocks, p.width);
    for (Packed<T>* packed : {&v, &grad, &sum_v}) *packed = Packed<T>::take(shared, blocks, p.value_width);
    lse = own.take<T>((blocks + 1) * tile), delta = own.take<T>((blocks + 1) * tile);
    row = own.take<T>(fold_rows * p.width * w), grad_row = own.take<T>(fold_rows * p.value_width * w);
    weights = own.take<T>(this->room()), slopes = own.take<T>(this->room());
    sum_q = own.take<T>(fold_rows * p.width * w);
  }

  void ready(int64_t head, bool differs) {
    if (differs) {
      for (const Packed<T>& packed : {q, k, v, grad}) clear_ends(packed, span.blocks);
      for (int64_t i = 0; i < (span.blocks + 1) * tile; ++i) lse[i] = never, delta[i] = 0;
    }
    // The pass over dense rows adds to these gradients.
    this->template clear_gradients<S>(head, span.begin + span.first_row);
  }
  void prepare(int64_t, int64_t, int64_t) {}
  void phase(int, int64_t, int64_t) {}

  void pack_all(int64_t head) {
    this->template pack_inputs<S>(q, k, v, head, 0, span.blocks, T(scale * log2_e));
    pack(grad, 0, span.blocks, Head<S>(p.grad_out, p, head, span.begin), span.first_row, span.length, T(1));
    pack(sum_v, 0, span.blocks, Head<S>(p.out, p, head, span.begin), span.first_row, span.length, T(1));
    for (int64_t l = span.first_row; l < span.length; ++l) lse[l] = this->lse_of(head)[l];
    // Weighted mean of the score gradients of a row: its result times the gradient of its result.
    for (int64_t l = 0; l < span.blocks * tile; l += w) {
      const T *const x = sum_v.at(l), *const y = grad.at(l);
      Vec<T> mean{};
      for (int64_t c = 0; c < p.value_width * row_stride<T>; c += row_stride<T>) mean += load(x + c) * load(y + c);
      store(delta + l, mean);
    }
    for (const Packed<T>& packed : {sum_k, sum_v})
      std::memset(packed.data, 0, Packed<T>::size(span.blocks, packed.width) * sizeof(T));
  }

  void whole(int64_t head) {
    pack_all(head);
    const int64_t width_block = k.block_size(), value_block = v.block_size();
    for (int64_t i = 0; i < this->vectors(); ++i) {
      this->residue = i * w;
      this->each_block([&] {
        this->copy_rows(row, q), this->copy_rows(grad_row, grad);
        std::memset(sum_q, 0, rows * p.width * w * sizeof(T));
        this->each_piece(width_block, value_block, [&] {
          this->dots(weights, row, k, this->width_offsets);
          this->dots(slopes, grad_row, v, this->value_offsets);
          weigh();
          this->combine(sum_q, slopes, k, this->width_offsets);
          this->gather(sum_k, slopes, row, this->width_offsets);
          this->gather(sum_v, weights, grad_row, this->value_offsets);
        });
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t position = this->position(r);
          const int64_t lo = span.first_row > position ? span.first_row - position : 0;
          write_lanes(sum_q + r * p.width * w, p.width, Head<S>(p.grad_q, p, head, span.begin), position, lo,
                      this->lanes_of(r), all<T>(scale));
        }
      });
    }
    write_keys(head, sum_k, p.grad_k, T(ln_2));  // q was packed times log2(e)
    write_keys(head, sum_v, p.grad_v, T(1));
  }

  // Turns products into the weights of the cells and the gradients of their scores.
  void weigh() {
    const Mask<T> in_period = iota<T>(T(0)) < all<T>(T(this->h - this->residue));
    for (int64_t r = 0; r < rows; ++r) {
      const Vec<T> top = in_period ? load(lse + this->position(r)) : all<T>(never);
      const Vec<T> mean = load(delta + this->position(r));
      this->each_cell(r, [&](int64_t at, int64_t m, int64_t n, bool partial) {
        Vec<T> weight = exp2<T>(load(weights + at) - top);
        if (partial) weight = this->inside(m) ? weight : Vec<T>{};
        const Vec<T> stays = dropout.on ? this->stays(m, n, r) : all<T>(1);
        store(slopes + at, weight * (load(slopes + at) * stays - mean));
        store(weights + at, weight * stays);
      });
    }
  }

  // Sums beyond the end of a block belong to the next one.
  void write_keys(int64_t head, const Packed<T>& sum, const View& view, T factor) {
    for (int64_t b = 0; b < span.blocks; ++b) {
      for (int64_t c = 0; c < sum.width; ++c) {
        T* const to = sum.block(b) + c * row_stride<T>;
        const T* const before = sum.block(b - 1) + c * row_stride<T> + tile;
        for (int i = 0; i < spill<T>; i += w) store(to + i, load(to + i) + load(before + i));
      }
      const int64_t start = b * tile, hi = span.length - start < tile ? span.length - start : tile;
      unpack(sum.block(b), sum.width, Head<S>(view, p, head, span.begin), start, 0, hi, factor);
    }
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
