// q, k, v -> out and log-sum-exp, over the pattern's cells only: tiles of positions, distances in chunks, and a running
// maximum from chunk to chunk, so that the scratch does not grow with the number of distances.
#pragma once
#include "dropout.h"
#include "scratch.h"
#include "tiles.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

constexpr double log2_e = 1.4426950408889634074, ln_2 = 0.693147180559945309417;
constexpr int chunk_max = 48;  // distances whose scores of one tile are held at a time

// How many distances reach a row of the tile that starts at `start`.
LOGSPARSE_INLINE int64_t distances_in_reach(const Problem& p, int64_t start) {
  int64_t count = p.distance_count;
  while (p.distances[count - 1] > start + tile - 1) --count;
  return count;
}

template <class S, class T> struct Forward {
  static constexpr int phases = 1;
  static constexpr T lowest = T(-1e30);  // finite: a row's running maximum before its first cell
  const Problem& p;
  Packed<T> k, v, q, sum;
  T *scores, *maximum, *total, *rescale;
  Dropout<T> dropout;
  const T scale;
  Span span;

  Forward(const Problem& problem, Pieces& shared, Pieces& own)
      : p(problem), dropout(problem.dropout), scale(T(log2_e / __builtin_sqrt(double(p.width)))) {
    const int64_t blocks = (p.length + tile - 1) / tile;
    k = {shared.take<T>(Packed<T>::size(blocks, p.width)), p.width};
    v = {shared.take<T>(Packed<T>::size(blocks, p.value_width)), p.value_width};
    q = {own.take<T>(Packed<T>::size(stretch, p.width)), p.width};
    sum = {own.take<T>(Packed<T>::size(1, p.value_width)), p.value_width};
    scores = own.take<T>(chunk_max * tile);
    maximum = own.take<T>(tile), total = own.take<T>(tile), rescale = own.take<T>(tile);
  }

  bool enter(int64_t head) {
    const Span last = span;
    span = Span(p, head);
    dropout.enter(p.seed, head / p.heads, head % p.heads, span.begin);
    return !(span == last);
  }

  void ready(int64_t head, bool differs) {
    if (differs) clear_ends(k, span.blocks), clear_ends(v, span.blocks);
    if (span.begin > p.first_row) {
      clear_rows(Head<S>(p.out, p, head, 0), p.value_width, span.begin - p.first_row);
      std::memset(lse_of(head) + p.first_row - span.begin, 0, (span.begin - p.first_row) * sizeof(T));
    }
  }

  void prepare(int64_t head, int64_t b, int64_t end) {
    pack(k, b, end, Head<S>(p.k, p, head, span.begin), 0, span.length, T(1));
    pack(v, b, end, Head<S>(p.v, p, head, span.begin), 0, span.length, T(1));
  }

  // Stretch by stretch, so that what was packed last is still in the cache when its rows are computed.
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
    const int64_t start = b * tile;
    std::memset(sum.block(0), 0, sum.block_size() * sizeof(T));
    for (int i = 0; i < tile; ++i) maximum[i] = lowest, total[i] = 0;

    T* rows[chunk_max];
    for (int m = 0; m < chunk_max; ++m) rows[m] = scores + m * tile;
    const Reach back{start, span.length, -1};
    const int64_t reach = distances_in_reach(p, start);
    for (int64_t m = 0, size; m < reach; m += size) {
      const int64_t chunks = (reach - m + chunk_max - 1) / chunk_max;
      size = (reach - m + chunks - 1) / chunks;
      tile_dots(queries, k, back, p.distances + m, size, rows);
      softmax(start, p.distances + m, size);
      if (m > 0) rescale_sum();
      tile_combine(sum.block(0), v, back, p.distances + m, size, rows);
    }
    finish(head, start);
  }

  // Scores of a chunk become weights relative to the running maximum.
  void softmax(int64_t start, const int64_t* distances, int64_t count) {
    constexpr int w = lanes<T>;
    for (int i = 0; i < tile; i += w) {
      const Vec<T> before = load(maximum + i), lane = iota<T>(T(i));
      Vec<T> top = before;
      for (int64_t m = 0; m < count; ++m) {
        Vec<T> score = load(scores + m * tile + i);
        if (distances[m] > start + i) {
          score = lane >= all<T>(T(distances[m] - start)) ? score : all<T>(-INFINITY);
          store(scores + m * tile + i, score);
        }
        top = larger<T>(top, score);
      }
      const Vec<T> shrink = exp2<T>(before - top);
      Vec<T> weights = load(total + i) * shrink;
      for (int64_t m = 0; m < count; ++m) {
        Vec<T> weight = exp2<T>(load(scores + m * tile + i) - top);
        weights += weight;
        if (dropout.on) weight *= dropout.factors(start + i, distances[m]);
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
    unpack(sum.block(0), p.value_width, Head<S>(p.out, p, head, span.begin - p.first_row), start, lo, hi, T(1));
    T* lse = lse_of(head) + start;
    for (int64_t i = lo; i < hi; ++i) lse[i] = maximum[i];
  }

  // Log-sum-exp of the rows of the span; those before its first row are not there.
  T* lse_of(int64_t head) const {
    return static_cast<T*>(p.lse) + head * (p.length - p.first_row) + span.begin - p.first_row;
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
