// q, k, v -> out and base-2 log-sum-exp, over the pattern's cells only: tiles of positions, distances in chunks, and a
// running maximum from chunk to chunk, so that the scratch does not grow with the number of distances.
#pragma once
#include "head.h"
#include "scratch.h"
#include "tiles.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

// Number of distances within reach of the tile that starts at `start`.
LOGSPARSE_INLINE int64_t distances_in_reach(const Problem& p, int64_t start) {
  int64_t count = p.distance_count;
  while (p.distances[count - 1] > start + tile - 1) --count;
  return count;
}

// `Cells` are the cells that a tile sees: the pattern's (Sparse), or all before it (Dense, in dense.h).
template <class S, class T, template <class> class Cells> struct Forward : HeadPass<T> {
  using HeadPass<T>::p;
  using HeadPass<T>::span;
  using HeadPass<T>::dropout;
  static constexpr int phases = 1;
  static constexpr T lowest = T(-1e30);  // running maximum before the first cell; -inf minus itself is NaN
  Packed<T> k, v, q, sum;
  T *scores, *maximum, *total, *rescale;
  const T scale;

  Forward(const Problem& problem, Pieces& shared, Pieces& own)
      : HeadPass<T>(problem), scale(T(log2_e / __builtin_sqrt(double(p.width)))) {
    const int64_t blocks = (p.length + tile - 1) / tile;
    k = Packed<T>::take(shared, blocks, p.width);
    v = Packed<T>::take(shared, blocks, p.value_width);
    q = Packed<T>::take(own, stretch, p.width);
    sum = Packed<T>::take(own, 1, p.value_width);
    scores = own.take<T>(Cells<T>::chunk * tile);
    maximum = own.take<T>(tile), total = own.take<T>(tile), rescale = own.take<T>(tile);
  }

  void ready(int64_t head, bool differs) {
    if (differs) clear_ends(k, span.blocks), clear_ends(v, span.blocks);
    this->template clear_padding<S>(head);
  }

  void prepare(int64_t head, int64_t b, int64_t end) {
    pack(k, b, end, Head<S>(p.k, p, head, span.begin), 0, span.length, T(1));
    pack(v, b, end, Head<S>(p.v, p, head, span.begin), 0, span.length, T(1));
  }

  // In stretches of blocks, so that packed keys and values are still in the cache when their rows are computed.
  void whole(int64_t head) {
    for (int64_t b = 0; b < span.blocks; b += stretch) {
      const int64_t end = b + stretch < span.blocks ? b + stretch : span.blocks;
      prepare(head, b, end);
      pack_queries(head, b, end);
      for (int64_t i = b; i < end; ++i)
        if (i >= span.first_row / tile) tile_of(head, i, q.block(i - b));
    }
  }

  void phase(int, int64_t head, int64_t b) {
    if (b < span.first_row / tile) return;
    pack_queries(head, b, b + 1);
    tile_of(head, b, q.block(0));
  }

  void pack_queries(int64_t head, int64_t b, int64_t end) {
    pack(q, 0, end - b, Head<S>(p.q, p, head, span.begin + b * tile), 0, span.length - b * tile, scale);
  }

  void tile_of(int64_t head, int64_t b, const T* queries) {
    std::memset(sum.block(0), 0, sum.block_size() * sizeof(T));
    for (int i = 0; i < tile; ++i) maximum[i] = lowest, total[i] = 0;
    for (Cells<T> cells(p, span, b); cells.left(); cells.next()) {
      cells.dots(scores, queries, k);
      softmax(cells);
      if (!cells.first()) rescale_sum();
      cells.combine(sum.block(0), v, scores);
    }
    finish(head, b * tile);
  }

  // Turns the scores of a chunk into weights relative to the running maximum. `cells` is passed by value: the stores
  // might alias the original.
  void softmax(const Cells<T> cells) {
    constexpr int w = lanes<T>;
    T* const scores = this->scores;
    for (int i = 0; i < tile; i += w) {
      const int64_t count = cells.count_at(i);
      const Vec<T> before = load(maximum + i);
      Vec<T> top = before;
      for (int64_t m = 0; m < count; ++m) {
        Vec<T> score = load(scores + m * tile + i);
        if (cells.is_partial(m, i)) {
          score = cells.inside(m, i) ? score : all<T>(-INFINITY);
          store(scores + m * tile + i, score);
        }
        top = larger<T>(top, score);
      }
      const Vec<T> shrink = exp2<T>(before - top);
      Vec<T> weights = load(total + i) * shrink;
      for (int64_t m = 0; m < count; ++m) {
        Vec<T> weight = exp2<T>(load(scores + m * tile + i) - top);
        weights += weight;
        if (dropout.on) weight *= cells.stays(dropout, m, i);
        store(scores + m * tile + i, weight);
      }
      store(maximum + i, top), store(total + i, weights), store(rescale + i, shrink);
    }
  }

  void rescale_sum() {
    for (int64_t c = 0; c < p.value_width; ++c) {
      T* row = sum.block(0) + c * row_stride<T>;
      for (int i = 0; i < tile; i += lanes<T>) store(row + i, load(row + i) * load(rescale + i));
    }
  }

  void finish(int64_t head, int64_t start) {
    for (int i = 0; i < tile; i += lanes<T>) {
      const Vec<T> weights = load(total + i);
      store(rescale + i, T(1) / weights);
      store(maximum + i, load(maximum + i) + log2<T>(weights));
    }
    rescale_sum();
    const int64_t lo = span.first_row > start ? span.first_row - start : 0;
    const int64_t hi = span.length - start < tile ? span.length - start : tile;
    unpack(sum.block(0), p.value_width, Head<S>(p.out, p, head, span.begin), start, lo, hi, T(1));
    T* lse = this->lse_of(head) + start;
    for (int64_t i = lo; i < hi; ++i) lse[i] = maximum[i];
  }
};

// The pattern's cells of a tile of rows, a chunk of distances at a time; m counts distances of the chunk.
template <class T> struct Sparse {
  static constexpr int chunk = 48;  // distances per chunk
  const int64_t* const distances;
  const Reach back;
  const int64_t reach;
  int64_t done = 0, count = 0;

  Sparse(const Problem& p, const Span& span, int64_t b)
      : distances(p.distances), back{b * tile, span.length, -1}, reach(distances_in_reach(p, b * tile)) {
    cut();
  }
  bool left() const { return done < reach; }
  bool first() const { return done == 0; }
  void next() { done += count, cut(); }
  void cut() {
    const int64_t chunks = (reach - done + chunk - 1) / chunk;
    count = chunks == 0 ? 0 : (reach - done + chunks - 1) / chunks;
  }

  void dots(T* scores, const T* queries, const Packed<T>& k) const {
    T* rows[chunk];
    for (int64_t m = 0; m < count; ++m) rows[m] = scores + m * tile;
    tile_dots(queries, k, back, distances + done, count, rows);
  }
  void combine(T* sum, const Packed<T>& v, const T* weights) const {
    const T* rows[chunk];
    for (int64_t m = 0; m < count; ++m) rows[m] = weights + m * tile;
    tile_combine(sum, v, back, distances + done, count, rows);
  }

  LOGSPARSE_INLINE int64_t count_at(int) const { return count; }
  LOGSPARSE_INLINE bool is_partial(int64_t m, int i) const { return distances[done + m] > back.start + i; }
  LOGSPARSE_INLINE Mask<T> inside(int64_t m, int i) const {
    return iota<T>(T(i)) >= all<T>(T(distances[done + m] - back.start));
  }
  LOGSPARSE_INLINE Vec<T> stays(const Dropout<T>& dropout, int64_t m, int i) const {
    return dropout.factors(back.start + i, distances[done + m]);
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
