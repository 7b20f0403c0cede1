// q, k, v, log-sum-exp and the gradient of out -> gradients of q, k, v. Scores are computed anew; a key's gradient is
// gathered from the rows that see it (key j is seen by row j + s), so that no two threads write one place.
#pragma once
#include "forward.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

template <class S, class T> struct Backward {
  static constexpr int phases = 2;
  static constexpr T never = T(1e30);  // log-sum-exp of a row that is not ours: its weights become exactly 0
  const Problem& p;
  Packed<T> q, k, v, grad, sum_width, sum_value;
  T *lse, *delta, *weight_memory, *slope_memory;
  T **weights, **slopes;  // one tile of cell weights, and of their scores' gradients, for each distance
  Dropout<T> dropout;
  const int64_t blocks, first_block;
  const T scale;

  Backward(const Problem& problem, Pieces& shared, Pieces& own)
      : p(problem), dropout(problem.dropout), blocks((p.length + tile - 1) / tile), first_block(p.first_row / tile),
        scale(T(1 / __builtin_sqrt(double(p.width)))) {
    q = {shared.take<T>(Packed<T>::size(blocks, p.width)), p.width};
    k = {shared.take<T>(Packed<T>::size(blocks, p.width)), p.width};
    v = {shared.take<T>(Packed<T>::size(blocks, p.value_width)), p.value_width};
    grad = {shared.take<T>(Packed<T>::size(blocks, p.value_width)), p.value_width};
    lse = shared.take<T>((blocks + 2) * tile), delta = shared.take<T>((blocks + 2) * tile);
    sum_width = {own.take<T>(Packed<T>::size(1, p.width)), p.width};
    sum_value = {own.take<T>(Packed<T>::size(1, p.value_width)), p.value_width};
    weight_memory = own.take<T>(p.distance_count * tile), slope_memory = own.take<T>(p.distance_count * tile);
    weights = own.take<T*>(p.distance_count), slopes = own.take<T*>(p.distance_count);
    if (own.data != nullptr)
      for (int64_t m = 0; m < p.distance_count; ++m)
        weights[m] = weight_memory + m * tile, slopes[m] = slope_memory + m * tile;
  }

  void clear() {
    clear_ends(q, blocks), clear_ends(k, blocks), clear_ends(v, blocks), clear_ends(grad, blocks);
    for (int64_t i = 0; i < (blocks + 2) * tile; ++i) lse[i] = never, delta[i] = 0;
  }

  void prepare(int64_t head, int64_t b) {
    const int64_t batch = head / p.heads, h = head % p.heads, rows = p.length - p.first_row;
    pack(q, b, Head<S>(p.q, batch, h), 0, p.length, T(scale * log2_e));
    pack(k, b, Head<S>(p.k, batch, h), 0, p.length, T(1));
    pack(v, b, Head<S>(p.v, batch, h), 0, p.length, T(1));
    Head<S> source(p.grad_out, batch, h);
    source.data -= p.first_row * source.row;
    pack(grad, b, source, p.first_row, p.length, T(1));
    const T* kept = static_cast<const T*>(p.lse) + head * rows - p.first_row;
    for (int64_t l = b * tile; l < (b + 1) * tile && l < p.length; ++l)
      if (l >= p.first_row) lse[l] = kept[l];
  }

  void whole(int64_t head) {
    for (int n = 0; n < phases; ++n)
      for (int64_t b = 0; b < blocks; ++b) phase(n, head, b);
  }

  void phase(int n, int64_t head, int64_t b) {
    dropout.enter(p.seed, head / p.heads, head % p.heads);
    n == 0 ? rows_of(head, b) : keys_of(head, b);
  }

  // Gradient of the queries of a tile; leaves delta, the weighted mean of the cells' gradients, for the keys.
  void rows_of(int64_t head, int64_t b) {
    const int64_t start = b * tile, count = distances_in_reach(p, start);
    const T* top = lse + start;
    tile_dots(q.block(b), k, start, -1, p.distances, count, weights);
    tile_dots(grad.block(b), v, start, -1, p.distances, count, slopes);
    for (int i = 0; i < tile; i += lanes<T>) {
      Vec<T> mean{};
      for (int64_t m = 0; m < count; ++m) {
        const int64_t s = p.distances[m];
        Vec<T> weight = exp2<T>(load(weights[m] + i) - load(top + i)), slope = load(slopes[m] + i);
        if (s > start + i) weight = iota<T>(T(i)) >= all<T>(T(s - start)) ? weight : Vec<T>{};
        if (dropout.on) slope *= dropout.factors(start + i, s);
        mean += weight * slope;
        store(weights[m] + i, weight), store(slopes[m] + i, slope);
      }
      store(delta + start + i, mean);
      for (int64_t m = 0; m < count; ++m)
        store(slopes[m] + i, load(weights[m] + i) * (load(slopes[m] + i) - mean));
    }
    gather(sum_width, k, start, -1, count, slopes);
    write(sum_width, p.grad_q, head, start, scale);
  }

  // Gradients of the keys and values of a tile, from the rows that see them.
  void keys_of(int64_t head, int64_t b) {
    const int64_t start = b * tile;
    int64_t count = p.distance_count;
    while (p.distances[count - 1] + start >= p.length) --count;
    tile_dots(k.block(b), q, start, 1, p.distances, count, weights);
    tile_dots(v.block(b), grad, start, 1, p.distances, count, slopes);
    for (int64_t m = 0; m < count; ++m) {
      for (int i = 0; i < tile; i += lanes<T>) {
        const int64_t row = start + i + p.distances[m];
        Vec<T> weight = exp2<T>(load(weights[m] + i) - load(lse + row)), slope = load(slopes[m] + i), stays = all<T>(1);
        if (dropout.on) stays = dropout.factors(row, p.distances[m]);
        store(slopes[m] + i, weight * (slope * stays - load(delta + row)));
        store(weights[m] + i, weight * stays);
      }
    }
    gather(sum_width, q, start, 1, count, slopes);
    write(sum_width, p.grad_k, head, start, T(ln_2));  // q was packed with log2(e) on it
    gather(sum_value, grad, start, 1, count, weights);
    write(sum_value, p.grad_v, head, start, T(1));
  }

  void gather(const Packed<T>& sum, const Packed<T>& other, int64_t start, int sign, int64_t count, T* const* rows) {
    std::memset(sum.block(0), 0, sum.block_size() * sizeof(T));
    tile_combine(sum.block(0), other, start, sign, p.distances, count, rows);
  }

  void write(const Packed<T>& sum, const View& view, int64_t head, int64_t start, T factor) {
    const int64_t hi = p.length - start < tile ? p.length - start : tile;
    unpack(sum.block(0), sum.width, Head<S>(view, head / p.heads, head % p.heads), start, 0, hi, factor);
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
