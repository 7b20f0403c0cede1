// Attention over a pattern that repeats: its distances are s + m * h for a few s below h and all m >= 0 (`restart`).
// This file has its products and the iteration over rows and keys that both passes of folded.h share.
//
// Position l is h * t + r. Rows of a vector of residues r see, at distance s + h * (t - t'), keys h * t' + r - s: for
// one s, one vector of keys serves all rows t >= t', and one vector of rows all keys t' <= t. So scores, results and
// gradients become small matrix products over t and t', lane by lane, with most operands in registers. The tiles of
// tiles.h load one operand of each product from memory, mostly across cache lines.
#pragma once
#include <type_traits>

#include "head.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

constexpr int fold_keys = 8;  // keys t' of a piece, with a running maximum from piece to piece
// Block sizes that fill the 32 or 16 registers: rows t, channels of a result, keys that all rows of a block see, and
// keys among the rows' own, of which row n sees the first n + 1.
constexpr int fold_rows = LOGSPARSE_BYTES == 64 ? 8 : 4, fold_channels = 3;
constexpr int fold_full = LOGSPARSE_BYTES == 64 ? 3 : 2, fold_own = 4;

// Number of distances before the pattern repeats, if it repeats exactly up to the length; otherwise 0. The next
// distance is h.
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

// Calls body with the number, 1 to `most`, as a compile-time constant.
template <int most, class Body> LOGSPARSE_INLINE void with_constant(int64_t number, Body body) {
  if constexpr (most > 1)
    if (number < most) return with_constant<most - 1>(number, body);
  body(std::integral_constant<int, most>());
}

// Cells of a piece are stored by distance, then by key, one vector per row that sees the key, without gaps: all R rows
// see the first `full` keys; of the rows' own keys, number n is seen by the rows from n on. Row r of key n is at
// key_start(R, n, own) + r.
constexpr int64_t key_start(int64_t R, int64_t n, bool own) { return own ? n * R - n * (n + 1) / 2 : n * R; }

// Addresses of K keys in packed memory.
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
__attribute__((noinline)) void fold_gather(const T* weights, const T* rows, T* data, const int64_t* offsets,
                                           int64_t width) {
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

// sum[r][c] += sum over distances m and keys k of weights[m][k][r] * keys[m][k][c], for C channels. Of the keys, `full`
// are seen by all rows; with `own`, R more follow, key n of which is seen by the rows from n on.
template <class T, int R, int C>
__attribute__((noinline)) void fold_combine(T* sum, int64_t width, const T* weights, const T* keys,
                                            const int64_t* offsets, int64_t count, int64_t full, bool own) {
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

// Shared by both passes: iteration over rows and keys, and the scores of a piece.
template <class T> struct Fold : HeadPass<T> {
  using HeadPass<T>::p;
  using HeadPass<T>::span;
  using HeadPass<T>::dropout;
  static constexpr int w = lanes<T>;
  const int64_t count, h;  // distances below the period h
  int64_t residue = 0;     // of the first lane
  int64_t first = 0, rows = 0;           // rows t of a block
  int64_t from = 0, keys = 0, full = 0;  // keys t' of a piece, and how many of them all rows see
  int64_t *width_offsets, *value_offsets;  // offsets of the vector of each distance and key in packed memory
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
          const uint64_t shifted = key <= -w ? 0 : uint64_t(key + tile);  // entirely before the sequence: zeros
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

  // Copies the rows of the block to [c][r]: all distances read them, and in packed memory they may cross cache lines.
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
          fold_combine<T, R.value, C.value>(sum + c * w, other.width, weights, other.data + c * row_stride<T>, offsets,
                                            count, full, keys > full);
        });
      });
    }
  }

  // Calls body(offset, m, k, partial) for each cell of a row; partial: some lanes of the key precede the sequence.
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

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
