// The product that convolution, dense attention and position-wise layers consist of: single numbers times vectors of
// positions, summed over terms. Six rows of two vectors fill the registers, so that eight loads serve twelve products.
#pragma once
#include "simd.h"
#include "tiles.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

// The factor of term n in row r is at data[n * step + r * row].
template <class T> struct Factors {
  const T* data;
  int64_t step, row;
};

// Term n = (a, b), with b running fastest, is the pair of vectors at data[a * outer + b].
template <class T> struct Terms {
  const T* data;
  int64_t count, outer, taps;
};

// out[r][i] = first[r], or itself without one, + sum over terms n of factor[n][r] * term[n][i], for R rows and V
// vectors i.
template <class T, int R, int V>
void add_product(T* out, int64_t out_row, Factors<T> factors, Terms<T> terms, const T* first) {
  constexpr int w = lanes<T>;
  Vec<T> sum[R][V];
  const T* factor[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    factor[r] = factors.data + r * factors.row;
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[r][v] = first == nullptr ? load(out + r * out_row + v * w) : all<T>(first[r]);
  }
  int64_t at = 0;
  for (int64_t a = 0; a < terms.count; ++a) {
    const T* term = terms.data + a * terms.outer;
    for (int64_t b = 0; b < terms.taps; ++b, at += factors.step) {
      Vec<T> x[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) x[v] = load(term + b + v * w);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vec<T> f = all<T>(factor[r][at]);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) sum[r][v] += f * x[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) store(out + r * out_row + v * w, sum[r][v]);
  }
}

// The same for any number of rows and columns. Columns are rounded up to whole vectors: the caller provides room for
// them in `out` and after the terms.
template <class T>
void multiply(T* out, int64_t out_row, int64_t rows, int64_t columns, Factors<T> factors, Terms<T> terms,
              const T* first = nullptr) {
  for (int64_t r = 0, size; r < rows; r += size) {
    size = group_size(rows - r);
    const Factors<T> of_rows{factors.data + r * factors.row, factors.step, factors.row};
    const T* const of_first = first == nullptr ? first : first + r;
    for (int64_t i = 0; i < columns; i += pair<T>) {
      const Terms<T> of_columns{terms.data + i, terms.count, terms.outer, terms.taps};
      T* const to = out + r * out_row + i;
#define LOGSPARSE_PAIR(R) add_product<T, R, 2>(to, out_row, of_rows, of_columns, of_first)
#define LOGSPARSE_ONE(R) add_product<T, R, 1>(to, out_row, of_rows, of_columns, of_first)
      if (columns - i > lanes<T>) {
        LOGSPARSE_EACH_GROUP(size, LOGSPARSE_PAIR)
      } else {
        LOGSPARSE_EACH_GROUP(size, LOGSPARSE_ONE)
      }
#undef LOGSPARSE_PAIR
#undef LOGSPARSE_ONE
    }
  }
}

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
