// The two products of sparse attention: a tile of positions with the cells on the other side, several distances at a
// time, either summed over channels (scores) or weighted and summed over distances (results).
#pragma once
#include "packed.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

constexpr int group_max = 6;  // distances at a time: 2 x 6 sums fill the registers and reuse each loaded query

// out[g][i] = sum over c of a[c][i] * other[g][c][i], for a pair of vectors i and G distances g.
template <class T, int G>
void dots(const T* a, const T* const* other, int64_t width, T* const* out) {
  constexpr int w = lanes<T>;
  Vec<T> low[G], high[G];
  const T* b[G];
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) low[g] = high[g] = Vec<T>{}, b[g] = other[g];
  for (int64_t c = 0; c < width * row_stride<T>; c += row_stride<T>) {
    const Vec<T> a0 = load(a + c), a1 = load(a + c + w);
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) low[g] += a0 * load(b[g] + c), high[g] += a1 * load(b[g] + c + w);
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) store(out[g], low[g]), store(out[g] + w, high[g]);
}

// sum[c][i] += sum over g of weight[g][i] * other[g][c][i].
template <class T, int G>
void combine(T* sum, const T* const* other, int64_t width, const T* const* weight) {
  constexpr int w = lanes<T>;
  Vec<T> low[G], high[G];
  const T* b[G];
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) low[g] = load(weight[g]), high[g] = load(weight[g] + w), b[g] = other[g];
  for (int64_t c = 0; c < width * row_stride<T>; c += row_stride<T>) {
    Vec<T> s0 = load(sum + c), s1 = load(sum + c + w);
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) s0 += low[g] * load(b[g] + c), s1 += high[g] * load(b[g] + c + w);
    store(sum + c, s0), store(sum + c + w, s1);
  }
}

// Size of the next group of distances, so that groups are balanced: 7 is 4 + 3, not 6 + 1.
LOGSPARSE_INLINE int64_t group_size(int64_t left) {
  const int64_t groups = (left + group_max - 1) / group_max;
  return (left + groups - 1) / groups;
}

#define LOGSPARSE_EACH_GROUP(G, call) \
  switch (G) {                        \
    case 1: call(1); break;           \
    case 2: call(2); break;           \
    case 3: call(3); break;           \
    case 4: call(4); break;           \
    case 5: call(5); break;           \
    default: call(6); break;          \
  }

// The cells of a tile at distance s: position i of the tile and position start + sign * s + i of the other side.
// Rows look back (sign -1, cells before 0 do not exist), keys look forward (sign 1, rows from `length` on do not
// exist).
struct Reach {
  int64_t start, length;
  int sign;
  template <class T> LOGSPARSE_INLINE int64_t begin(int64_t s) const {  // first pair with a cell in it
    return sign < 0 && s > start ? (s - start) / pair<T> * pair<T> : 0;
  }
  LOGSPARSE_INLINE int64_t end(int64_t s) const {
    return sign > 0 && length - start - s < tile ? length - start - s : tile;
  }
};

// rows[m] = the products of the tile with distance m. Vector pairs without a cell in any distance of a group are not
// written.
template <class T>
void tile_dots(const T* a, const Packed<T>& other, Reach reach, const int64_t* distances, int64_t count,
               T* const* rows) {
  for (int64_t m = 0, size; m < count; m += size) {
    size = group_size(count - m);
    for (int64_t i = reach.begin<T>(distances[m]); i < reach.end(distances[m]); i += pair<T>) {
      const T* b[group_max];
      T* out[group_max];
      for (int64_t g = 0; g < size; ++g)
        b[g] = other.at(reach.start + reach.sign * distances[m + g] + i), out[g] = rows[m + g] + i;
#define LOGSPARSE_CALL(G) dots<T, G>(a + i, b, other.width, out)
      LOGSPARSE_EACH_GROUP(size, LOGSPARSE_CALL)
#undef LOGSPARSE_CALL
    }
  }
}

// sum += the other side, weighted by rows[m] at distance m.
template <class T>
void tile_combine(T* sum, const Packed<T>& other, Reach reach, const int64_t* distances, int64_t count,
                  const T* const* rows) {
  for (int64_t m = 0, size; m < count; m += size) {
    size = group_size(count - m);
    for (int64_t i = reach.begin<T>(distances[m]); i < reach.end(distances[m]); i += pair<T>) {
      const T *b[group_max], *weight[group_max];
      for (int64_t g = 0; g < size; ++g)
        b[g] = other.at(reach.start + reach.sign * distances[m + g] + i), weight[g] = rows[m + g] + i;
#define LOGSPARSE_CALL(G) combine<T, G>(sum + i, b, other.width, weight)
      LOGSPARSE_EACH_GROUP(size, LOGSPARSE_CALL)
#undef LOGSPARSE_CALL
    }
  }
}

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
