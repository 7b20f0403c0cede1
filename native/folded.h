// q, k, v -> out and log-sum-exp, and their gradients, over a pattern that repeats: its distances are s + m * h for a few
// s below h and all m >= 0 (`restart`).
//
// Position l is h * t + r. Rows of a vector of residues r see, at distance s + h * (t - t'), keys h * t' + r - s: for one s,
// one vector of keys serves all rows t >= t', and one vector of rows all keys t' <= t. So scores, results and gradients
// become small matrix products over t and t', lane by lane, with most of their numbers in registers. The tiles of tiles.h
// must load both sides of each product.
#pragma once
#include <type_traits>

#include "forward.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

constexpr int fold_rows = LOGSPARSE_BYTES == 64 ? 8 : 4;  // rows t at a time: 2 or 3 times as many sums fit the registers
constexpr int fold_channels = 3;
constexpr int fold_own = 4, fold_full = LOGSPARSE_BYTES == 64 ? 3 : 2;  // keys at a time that some, and that all rows see
constexpr int fold_keys = 8;  // keys t' at a time, with a running maximum from piece to piece

// How many distances come before the pattern repeats, if it does so exactly up to the length; otherwise 0. The first
// distance that is not among them is h.
inline int64_t distances_before_repeat(const Problem& p) {
  for (int64_t n = 1; n < p.distance_count && 2 * p.distances[n] < p.length; ++n) {
    const int64_t h = p.distances[n];
    if (p.distances[p.distance_count - n] + h < p.length) continue;
    int64_t i = n;
    while (i < p.distance_count && p.distances[i] == p.distances[i - n] + h) ++i;
    if (i == p.distance_count) return n;
  }
  return 0;
}

// Folding pays if a period fills its vectors well.
template <class T> bool can_fold(const Problem& p) {
  const int64_t n = distances_before_repeat(p), h = n == 0 ? 0 : p.distances[n];
  return h >= lanes<T> && (h + lanes<T> - 1) / lanes<T> * lanes<T> * 2 <= h * 3;
}

// Calls body with the number as a constant: 1 ... most.
template <int most, class Body> LOGSPARSE_INLINE void with_constant(int64_t number, Body body) {
  if constexpr (most > 1)
    if (number < most) return with_constant<most - 1>(number, body);
  body(std::integral_constant<int, most>());
}

// Cells of a piece stand distance by distance, key by key, one vector for each row that sees the key: all R rows see the
// first `full` keys; of the rows' own keys, number n is seen by the rows from n on. Nothing lies between them: with gaps,
// cells of one row would crowd few lines of the cache. Row r of key n stands at key_start(R, n, own) + r.
constexpr int64_t key_start(int64_t R, int64_t n, bool own) { return own ? n * R - n * (n + 1) / 2 : n * R; }

// Where K keys stand in packed memory.
template <class T, int K> struct Keys {
  T* at[K];
  Keys(T* data, const int64_t* offsets) {
    for (int k = 0; k < K; ++k) at[k] = data + offsets[k];
  }
};

// out[k][r] = sum over c of rows[c][r] * keys[k][c], for the rows that see the key.
template <class T, int R, int K, bool own>
__attribute__((noinline)) void fold_dots(T* out, const T* rows, T* data, const int64_t* offsets, int64_t width) {
  const Keys<T, K> keys(data, offsets);
  Vec<T> sum[K][R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) sum[k][r] = Vec<T>{};
  }
  for (int64_t c = 0; c < width * row_stride<T>; c += row_stride<T>, rows += fold_rows * lanes<T>) {
    Vec<T> y[K];
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) y[k] = in_register(load(keys.at[k] + c));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec<T> x = in_register(load(rows + r * lanes<T>));
#pragma GCC unroll 4
      for (int k = 0; k < K; ++k)
        if (!own || r >= k) sum[k][r] += x * y[k];
    }
  }
#pragma GCC unroll 4
  for (int k = 0; k < K; ++k) {
#pragma GCC unroll 8
    for (int r = own ? k : 0; r < R; ++r) store(out + (key_start(R, k, own) + r) * lanes<T>, sum[k][r]);
  }
}

// keys[k][c] += sum over the rows that see the key of weights[k][r] * rows[c][r].
template <class T, int R, int K, bool own>
__attribute__((noinline)) void fold_gather(const T* weights, const T* rows, T* data, const int64_t* offsets, int64_t width) {
  const Keys<T, K> keys(data, offsets);
  Vec<T> weight[K][R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k)
      if (!own || r >= k) weight[k][r] = load(weights + (key_start(R, k, own) + r) * lanes<T>);
  }
  for (int64_t c = 0; c < width * row_stride<T>; c += row_stride<T>, rows += fold_rows * lanes<T>) {
    Vec<T> sum[K];
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) sum[k] = load(keys.at[k] + c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec<T> x = in_register(load(rows + r * lanes<T>));
#pragma GCC unroll 4
      for (int k = 0; k < K; ++k)
        if (!own || r >= k) sum[k] += weight[k][r] * x;
    }
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) store(keys.at[k] + c, sum[k]);
  }
}

// sums[r][c] += weight[r] * key[c] for the rows from `first` on.
template <int first, class T, int R, int C>
LOGSPARSE_INLINE void add_key(Vec<T> (&sums)[R][C], const T* weight, const T* key) {
  Vec<T> x[C];
#pragma GCC unroll 3
  for (int c = 0; c < C; ++c) x[c] = in_register(load(key + c * row_stride<T>));
#pragma GCC unroll 8
  for (int r = first; r < R; ++r) {
    const Vec<T> y = in_register(load(weight + r * lanes<T>));
#pragma GCC unroll 3
    for (int c = 0; c < C; ++c) sums[r][c] += y * x[c];
  }
}
template <class T, int R, int C, int... N>
LOGSPARSE_INLINE void add_own_keys(Vec<T> (&sums)[R][C], const T* weights, const T* keys, const int64_t* offsets,
                                   std::integer_sequence<int, N...>) {
  (add_key<N, T, R, C>(sums, weights + key_start(R, N, true) * lanes<T>, keys + offsets[N]), ...);
}

// sum[r][c] += sum over distances m and keys k of weights[m][k][r] * keys[m][k][c], for C channels. Of the keys, `full` are
// seen by all rows; where `own`, R more follow, key n of which is seen by the rows from n on.
template <class T, int R, int C>
__attribute__((noinline)) void fold_combine(T* sum, int64_t width, const T* weights, const T* keys, const int64_t* offsets,
                                            int64_t count, int64_t full, bool own) {
  constexpr int w = lanes<T>;
  Vec<T> sums[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
    for (int c = 0; c < C; ++c) sums[r][c] = load(sum + (r * width + c) * w);
  }
  for (int64_t m = 0; m < count; ++m, offsets += fold_keys) {
    for (int64_t k = 0; k < full; ++k, weights += R * w) add_key<0, T, R, C>(sums, weights, keys + offsets[k]);
    if (!own) continue;
    add_own_keys<T, R, C>(sums, weights, keys, offsets + full, std::make_integer_sequence<int, R>());
    weights += (key_start(R, R, true) + R) * w;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
    for (int c = 0; c < C; ++c) store(sum + (r * width + c) * w, sums[r][c]);
  }
}

// Lanes [lo, hi) of sum[c] * factor go to rows position + lo ... of the target.
template <class S, class T>
void write_lanes(const T* sum, int64_t width, const Head<S>& target, int64_t position, int64_t lo, int64_t hi, Vec<T> factor) {
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

// What both directions share: the walk through rows and keys, and scores of a piece of it.
template <class T> struct Fold : HeadPass<T> {
  using HeadPass<T>::p;
  using HeadPass<T>::span;
  using HeadPass<T>::dropout;
  static constexpr int w = lanes<T>;
  const int64_t count, h;  // distances below the period h
  int64_t residue = 0;     // of the first lane
  int64_t first = 0, rows = 0;           // rows t of a block
  int64_t from = 0, keys = 0, full = 0;  // keys t' of a piece, and how many of them all rows see
  int64_t *width_offsets, *value_offsets;  // where the vector of each distance and key stands in packed memory
  Bits<T> row_hash[fold_rows];

  Fold(const Problem& problem, Pieces& own)
      : HeadPass<T>(problem), count(distances_before_repeat(p)), h(p.distances[count]) {
    value_offsets = width_offsets = own.take<int64_t>(count * fold_keys);
    if (p.value_width != p.width) value_offsets = own.take<int64_t>(count * fold_keys);
  }
  int64_t vectors() const { return (h + w - 1) / w; }
  int64_t room() const { return count * fold_keys * fold_rows * w; }  // of the cells of a piece
  int64_t position(int64_t r) const { return h * (first + r) + residue; }
  int64_t lanes_of(int64_t r) const {  // lanes of the period and of the sequence
    const int64_t a = h - residue, b = span.length - position(r), least = a < b ? a : b;
    return least < w ? least : w;
  }

  // Blocks of rows with a lane that is asked for, of the vector's residues.
  template <class Body> void each_block(Body body) {
    const int64_t end = residue < span.length ? (span.length - residue + h - 1) / h : 0;
    first = span.first_row >= residue + w ? (span.first_row - residue - w) / h + 1 : 0;
    if (first == 1) first = 0;  // a single row less would fit the registers worse
    for (; first < end; first += rows) {
      const int64_t blocks = (end - first + fold_rows - 1) / fold_rows;
      rows = (end - first + blocks - 1) / blocks;
      if (dropout.on)
        for (int64_t r = 0; r < rows; ++r) row_hash[r] = dropout.row(position(r));
      body();
    }
  }

  // The keys of a block of rows; the rows' own are never divided.
  template <class Body> void each_piece(int64_t width_block, int64_t value_block, Body body) {
    const int64_t end = first + rows;
    const bool two = value_block != width_block;
    for (from = 0; from < end; from += keys) {
      keys = end - from <= fold_keys ? end - from : first - from < fold_keys ? first - from : fold_keys;
      full = first - from < keys ? first - from : keys;
      for (int64_t m = 0; m < count; ++m)
        for (int64_t k = 0; k < keys; ++k) {
          const int64_t key = h * (from + k) + residue - p.distances[m];
          const uint64_t shifted = key <= -w ? 0 : uint64_t(key + tile);  // wholly before the sequence: zeros
          width_offsets[m * fold_keys + k] = int64_t(shifted / tile) * width_block + int64_t(shifted % tile);
          if (two) value_offsets[m * fold_keys + k] = int64_t(shifted / tile) * value_block + int64_t(shifted % tile);
        }
      body();
    }
  }

  // Calls body(cells, offsets, lowest row, constants R, K and `own`) for groups of keys, in the order of their cells.
  template <class Body> void each_group(T* at, const int64_t* offsets, Body body) const {
    for (int64_t m = 0; m < count; ++m, offsets += fold_keys) {
      for (int64_t k = 0, size; k < full; k += size, at += size * rows * w) {
        const int64_t groups = (full - k + fold_full - 1) / fold_full;
        size = (full - k + groups - 1) / groups;
        with_constant<fold_rows>(rows, [&](auto R) {
          with_constant<fold_full>(size, [&](auto K) { body(at, offsets + k, 0, R, K, std::false_type()); });
        });
      }
      for (int64_t n = 0, size; n < keys - full; n += size) {
        const int64_t left = rows - n;
        size = left < fold_own ? left : fold_own;
        with_constant<fold_rows>(left, [&](auto R) {
          constexpr int K = R.value < fold_own ? R.value : fold_own;
          body(at, offsets + full + n, n, R, std::integral_constant<int, K>(), std::true_type());
        });
        at += (key_start(left, size, true) + size) * w;
      }
    }
  }

  // The block's rows side by side: [c][r]. They serve every distance, where they stand they may cross lines of the cache.
  void copy_rows(T* to, const Packed<T>& packed) const {
    for (int64_t r = 0; r < rows; ++r) {
      const T* const row = packed.at(position(r));
      for (int64_t c = 0; c < packed.width; ++c) store(to + (c * fold_rows + r) * w, load(row + c * row_stride<T>));
    }
  }

  void dots(T* out, const T* row, const Packed<T>& other, const int64_t* offsets) const {
    each_group(out, offsets, [&](T* at, const int64_t* keys_at, int64_t lowest, auto R, auto K, auto own) {
      fold_dots<T, R.value, K.value, own.value>(at, row + lowest * w, other.data, keys_at, other.width);
    });
  }

  void gather(const Packed<T>& sum, T* weights, const T* row, const int64_t* offsets) const {
    each_group(weights, offsets, [&](T* at, const int64_t* keys_at, int64_t lowest, auto R, auto K, auto own) {
      fold_gather<T, R.value, K.value, own.value>(at, row + lowest * w, sum.data, keys_at, sum.width);
    });
  }

  void combine(T* sum, const T* weights, const Packed<T>& other, const int64_t* offsets) const {
    for (int64_t c = 0, size; c < other.width; c += size) {
      const int64_t groups = (other.width - c + fold_channels - 1) / fold_channels;
      size = (other.width - c + groups - 1) / groups;
      with_constant<fold_rows>(rows, [&](auto R) {
        with_constant<fold_channels>(size, [&](auto C) {
          fold_combine<T, R.value, C.value>(sum + c * w, other.width, weights, other.data + c * row_stride<T>, offsets, count,
                                            full, keys > full);
        });
      });
    }
  }

  // Calls body(where it stands, m, k, whether lanes of the key are before the sequence) for each cell of a row.
  template <class Body> LOGSPARSE_INLINE void each_cell(int64_t r, Body body) const {
    const int64_t own = keys > full ? r + 1 : 0, seen = full, step = rows * w;
    const int64_t size = full * step + (keys > full ? (key_start(rows, rows, true) + rows) * w : 0);
    for (int64_t m = 0; m < count; ++m) {
      const bool early = from == 0 && p.distances[m] > residue;
      int64_t at = m * size + r * w;
      for (int64_t k = 0; k < seen; ++k, at += step) body(at, m, k, early && k == 0);
      for (int64_t n = 0; n < own; ++n, at += step - n * w) body(at, m, seen + n, early && seen + n == 0);
    }
  }
  LOGSPARSE_INLINE Mask<T> inside(int64_t m) const { return iota<T>(T(0)) >= all<T>(T(p.distances[m] - residue)); }
  LOGSPARSE_INLINE Vec<T> stays(int64_t m, int64_t k, int64_t r) const {
    return dropout.cell(row_hash[r], p.distances[m] + h * (first + r - from - k));
  }
};

template <class S, class T> struct FoldedForward : Fold<T> {
  using Fold<T>::p;
  using Fold<T>::span;
  using Fold<T>::dropout;
  using Fold<T>::w;
  using Fold<T>::rows;
  static constexpr int phases = 1;
  static constexpr T lowest = T(-1e30);  // finite: a row's running maximum before its first cell
  Packed<T> q, k, v;
  T *row, *scores, *sum, *maximum, *total;
  const T scale;

  FoldedForward(const Problem& problem, Pieces& shared, Pieces& own)
      : Fold<T>(problem, own), scale(T(log2_e / __builtin_sqrt(double(p.width)))) {
    const int64_t blocks = (p.length + tile - 1) / tile;
    for (Packed<T>* packed : {&q, &k}) *packed = {shared.take<T>(Packed<T>::size(blocks, p.width)), p.width};
    v = {shared.take<T>(Packed<T>::size(blocks, p.value_width)), p.value_width};
    row = own.take<T>(fold_rows * p.width * w), scores = own.take<T>(this->room()), sum = own.take<T>(fold_rows * p.value_width * w);
    maximum = own.take<T>(fold_rows * w), total = own.take<T>(fold_rows * w);
  }

  void ready(int64_t head, bool differs) {
    if (differs)
      for (const Packed<T>& packed : {q, k, v}) clear_ends(packed, span.blocks);
    if (span.begin > p.first_row) {
      clear_rows(Head<S>(p.out, p, head, p.first_row), p.value_width, span.begin - p.first_row);
      std::memset(this->lse_of(head) + p.first_row - span.begin, 0, (span.begin - p.first_row) * sizeof(T));
    }
  }

  void prepare(int64_t head, int64_t b, int64_t end) {
    pack(q, b, end, Head<S>(p.q, p, head, span.begin), 0, span.length, scale);
    pack(k, b, end, Head<S>(p.k, p, head, span.begin), 0, span.length, T(1));
    pack(v, b, end, Head<S>(p.v, p, head, span.begin), 0, span.length, T(1));
  }

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

  // Scores of a piece become weights relative to the running maximum; sums so far shrink accordingly.
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

// A thread has a head of its own: keys get their gradients where they stand, vector by vector.
template <class S, class T> struct FoldedBackward : Fold<T> {
  using Fold<T>::p;
  using Fold<T>::span;
  using Fold<T>::dropout;
  using Fold<T>::w;
  using Fold<T>::rows;
  static constexpr int phases = 0;
  static constexpr T never = T(1e30);  // log-sum-exp of a row that is not ours: its weights become exactly 0
  Packed<T> q, k, v, grad, sum_k, sum_v;
  T *lse, *delta, *row, *grad_row, *weights, *slopes, *sum_q;
  const T scale;

  FoldedBackward(const Problem& problem, Pieces& shared, Pieces& own)
      : Fold<T>(problem, own), scale(T(1 / __builtin_sqrt(double(p.width)))) {
    const int64_t blocks = (p.length + tile - 1) / tile;
    for (Packed<T>* packed : {&q, &k, &sum_k}) *packed = {shared.take<T>(Packed<T>::size(blocks, p.width)), p.width};
    for (Packed<T>* packed : {&v, &grad, &sum_v})
      *packed = {shared.take<T>(Packed<T>::size(blocks, p.value_width)), p.value_width};
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
    // Rows that others compute add to what stands here.
    clear_rows(Head<S>(p.grad_q, p, head, 0), p.width, span.begin + span.first_row);
    clear_rows(Head<S>(p.grad_k, p, head, 0), p.width, span.begin);
    clear_rows(Head<S>(p.grad_v, p, head, 0), p.value_width, span.begin);
  }
  void prepare(int64_t, int64_t, int64_t) {}
  void phase(int, int64_t, int64_t) {}

  void pack_all(int64_t head) {
    pack(q, 0, span.blocks, Head<S>(p.q, p, head, span.begin), 0, span.length, T(scale * log2_e));
    pack(k, 0, span.blocks, Head<S>(p.k, p, head, span.begin), 0, span.length, T(1));
    pack(v, 0, span.blocks, Head<S>(p.v, p, head, span.begin), 0, span.length, T(1));
    pack(grad, 0, span.blocks, Head<S>(p.grad_out, p, head, span.begin), span.first_row, span.length, T(1));
    pack(sum_v, 0, span.blocks, Head<S>(p.out, p, head, span.begin), span.first_row, span.length, T(1));
    for (int64_t l = span.first_row; l < span.length; ++l) lse[l] = this->lse_of(head)[l];
    // The mean of a row's score gradients, weighted: its result times the gradient of its result.
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
    write_keys(head, sum_k, p.grad_k, T(ln_2));  // q was packed with log2(e) on it
    write_keys(head, sum_v, p.grad_v, T(1));
  }

  // Products become the cells' weights and their scores' gradients.
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

  // What was added behind the end of a block belongs to the next one.
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
