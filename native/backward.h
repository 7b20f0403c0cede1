// q, k, v, log-sum-exp and the gradient of out -> gradients of q, k, v. Scores are recomputed; the gradient of a key is
// gathered from the rows that see it (key j is seen by row j + s), so no two threads write to the same address.
//
// A thread with a head of its own processes the tiles from last to first: once the rows of tile b are done, so are all
// rows that see its keys, and weights are kept for s + tile positions only, in a ring buffer per distance, about L
// numbers for LogSparse. If the rings would be large, or threads share a head, keys recompute the weights.
#pragma once
#include "forward.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

template <class S, class T> struct Backward : HeadPass<T> {
  using HeadPass<T>::p;
  using HeadPass<T>::span;
  using HeadPass<T>::dropout;
  static constexpr int phases = 2;
  static constexpr T never = T(1e30);  // log-sum-exp of a row outside this pass: its weights become exactly 0
  static constexpr int64_t ring_limit = (int64_t(1) << 20) / sizeof(T);
  Packed<T> q, k, v, grad, sum_width, sum_value;
  T *lse, *delta, *memory;
  T **weights, **slopes;  // output tiles of cell weights and of score gradients, per distance
  const T **seen_weights, **seen_slopes;  // the same as read by the keys of a tile
  const T scale;
  bool rings;

  // Blocks kept for distance s; one more repeats the first, so that two consecutive blocks are contiguous.
  static int64_t ring(int64_t s) { return s / tile + 2; }

  Backward(const Problem& problem, Pieces& shared, Pieces& own)
      : HeadPass<T>(problem), scale(T(1 / __builtin_sqrt(double(p.width)))) {
    const int64_t blocks = (p.length + tile - 1) / tile;
    q = Packed<T>::take(shared, blocks, p.width);
    k = Packed<T>::take(shared, blocks, p.width);
    v = Packed<T>::take(shared, blocks, p.value_width);
    grad = Packed<T>::take(shared, blocks, p.value_width);
    lse = shared.take<T>((blocks + 2) * tile), delta = shared.take<T>((blocks + 2) * tile);
    sum_width = Packed<T>::take(own, 1, p.width);
    sum_value = Packed<T>::take(own, 1, p.value_width);
    const int64_t packed_size = 2 * Packed<T>::size(blocks, p.width + p.value_width);
    int64_t ring_size = 0;
    for (int64_t m = 0; m < p.distance_count; ++m) ring_size += 2 * (ring(p.distances[m]) + 1) * tile;
    rings = p.batch * p.heads >= p.threads && (ring_size <= ring_limit || ring_size <= packed_size / 4);
    memory = own.take<T>(rings ? ring_size : 2 * p.distance_count * tile);
    weights = own.take<T*>(p.distance_count), slopes = own.take<T*>(p.distance_count);
    seen_weights = own.take<const T*>(p.distance_count), seen_slopes = own.take<const T*>(p.distance_count);
    if (own.data != nullptr && !rings)
      for (int64_t m = 0; m < p.distance_count; ++m) {
        seen_weights[m] = weights[m] = memory + 2 * m * tile;
        seen_slopes[m] = slopes[m] = weights[m] + tile;
      }
  }

  void ready(int64_t head, bool differs) {
    if (differs) {
      for (const Packed<T>& packed : {q, k, v, grad}) clear_ends(packed, span.blocks);
      for (int64_t i = 0; i < (span.blocks + 2) * tile; ++i) lse[i] = never, delta[i] = 0;
    }
    this->template clear_gradients<S>(head, span.begin);
  }

  void prepare(int64_t head, int64_t b, int64_t end) {
    this->template pack_inputs<S>(q, k, v, head, b, end, T(scale * log2_e));
    pack(grad, b, end, Head<S>(p.grad_out, p, head, span.begin), span.first_row, span.length, T(1));
    const T* kept = this->lse_of(head);
    for (int64_t l = b * tile; l < end * tile && l < span.length; ++l)
      if (l >= span.first_row) lse[l] = kept[l];
  }

  void whole(int64_t head) {
    for (int64_t b = 0; b < span.blocks; b += stretch)
      prepare(head, b, b + stretch < span.blocks ? b + stretch : span.blocks);
    if (!rings) {
      for (int n = 0; n < phases; ++n)
        for (int64_t b = 0; b < span.blocks; ++b) phase(n, head, b);
      return;
    }
    turn_rings(span.blocks, true);
    for (int64_t b = span.blocks - 1; b >= 0; --b) {
      turn_rings(b, false);
      rows_of(head, b);
      repeat_first(b);
      gather_keys(head, b);
    }
  }

  void phase(int n, int64_t head, int64_t b) {
    if (n == 0) {
      rows_of(head, b);
    } else {
      weigh_keys(b);
      gather_keys(head, b);
    }
  }

  // Points rows at the slot of block b, and keys at the slot of the rows that see them; `empty` fills in the zeros
  // after the end.
  void turn_rings(int64_t b, bool empty) {
    T* slot = memory;
    for (int64_t m = 0; m < p.distance_count; ++m) {
      const int64_t s = p.distances[m], size = ring(s), piece = (size + 1) * tile;
      weights[m] = slot + b % size * tile, slopes[m] = weights[m] + piece;
      seen_weights[m] = slot + (b + s / tile) % size * tile + s % tile, seen_slopes[m] = seen_weights[m] + piece;
      slot += 2 * piece;
      if (!empty) continue;
      std::memset(weights[m], 0, tile * sizeof(T));
      std::memset(slopes[m], 0, tile * sizeof(T));
    }
    if (empty) repeat_first(b);
  }

  void repeat_first(int64_t b) {
    for (int64_t m = 0; m < p.distance_count; ++m) {
      const int64_t size = ring(p.distances[m]);
      if (b % size != 0) continue;
      std::memcpy(weights[m] + size * tile, weights[m], tile * sizeof(T));
      std::memcpy(slopes[m] + size * tile, slopes[m], tile * sizeof(T));
    }
  }

  // Writes the gradient of the queries of a tile; leaves the weights of the cells, the gradients of their scores, and
  // the weighted mean of these per row.
  void rows_of(int64_t head, int64_t b) {
    const int64_t start = b * tile, count = distances_in_reach(p, start);
    const Reach back{start, span.length, -1};
    tile_dots(q.block(b), k, back, p.distances, count, weights);
    tile_dots(grad.block(b), v, back, p.distances, count, slopes);
    for (int i = 0; i < tile; i += lanes<T>) {
      const Vec<T> top = load(lse + start + i), lane = iota<T>(T(i));
      Vec<T> mean{};
      for (int64_t m = 0; m < count; ++m) {
        const int64_t s = p.distances[m];
        Vec<T> weight = exp2<T>(load(weights[m] + i) - top), slope = load(slopes[m] + i);
        if (s > start + i) {
          const Mask<T> inside = lane >= all<T>(T(s - start));
          weight = inside ? weight : Vec<T>{}, slope = inside ? slope : Vec<T>{};
        }
        if (dropout.on) slope *= dropout.factors(start + i, s);
        mean += weight * slope;
        store(weights[m] + i, weight), store(slopes[m] + i, slope);
      }
      store(delta + start + i, mean);
      for (int64_t m = 0; m < count; ++m) {
        const Vec<T> weight = load(weights[m] + i);
        store(slopes[m] + i, weight * (load(slopes[m] + i) - mean));
        if (dropout.on) store(weights[m] + i, weight * dropout.factors(start + i, p.distances[m]));
      }
    }
    gather(sum_width, k, back, count, slopes);
    write(sum_width, p.grad_q, head, start, scale);
  }

  int64_t distances_in_sight(int64_t start) const {
    int64_t count = p.distance_count;
    while (p.distances[count - 1] + start >= span.length) --count;
    return count;
  }

  // Weights and score gradients of the cells that see the keys of a tile, computed per key.
  void weigh_keys(int64_t b) {
    const int64_t start = b * tile, count = distances_in_sight(start);
    const Reach ahead{start, span.length, 1};
    tile_dots(k.block(b), q, ahead, p.distances, count, weights);
    tile_dots(v.block(b), grad, ahead, p.distances, count, slopes);
    for (int64_t m = 0; m < count; ++m) {
      for (int i = 0; i < tile; i += lanes<T>) {
        const int64_t row = start + i + p.distances[m];
        const Vec<T> weight = exp2<T>(load(weights[m] + i) - load(lse + row));
        const Vec<T> stays = dropout.on ? dropout.factors(row, p.distances[m]) : all<T>(1);
        store(slopes[m] + i, weight * (load(slopes[m] + i) * stays - load(delta + row)));
        store(weights[m] + i, weight * stays);
      }
    }
  }

  void gather_keys(int64_t head, int64_t b) {
    const int64_t start = b * tile, count = distances_in_sight(start);
    const Reach ahead{start, span.length, 1};
    gather(sum_width, q, ahead, count, seen_slopes);
    write(sum_width, p.grad_k, head, start, T(ln_2));  // q was packed times log2(e)
    gather(sum_value, grad, ahead, count, seen_weights);
    write(sum_value, p.grad_v, head, start, T(1));
  }

  void gather(const Packed<T>& sum, const Packed<T>& other, Reach reach, int64_t count, const T* const* rows) {
    std::memset(sum.block(0), 0, sum.block_size() * sizeof(T));
    tile_combine(sum.block(0), other, reach, p.distances, count, rows);
  }

  void write(const Packed<T>& sum, const View& view, int64_t head, int64_t start, T factor) {
    const int64_t hi = span.length - start < tile ? span.length - start : tile;
    unpack(sum.block(0), sum.width, Head<S>(view, p, head, span.begin), start, 0, hi, factor);
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
