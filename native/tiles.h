// Strided memory <-> packed tiles, and the two products that all the work consists of.
//
// A head is packed as blocks of `tile` positions, each block channel-first: block b, channel c, position l stands at
// [b][c][l]. A row carries `spill` further positions of the next block, so that a vector pair starting anywhere in a
// block is one piece of memory. One zero block stands before the first and one after the last: a cell outside the
// series reads zeros. Packed like this, no length makes channels collide in the cache, and a distance touches few pages.
#pragma once
#include <cstring>

#include "problem.h"
#include "simd.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

constexpr int tile = 64;  // positions a block
constexpr int group_max = 6;  // distances at a time: 2 x 6 sums fill the registers, and reuse each loaded query
template <class T> constexpr int pair = 2 * lanes<T>;
template <class T> constexpr int spill = pair<T>;
template <class T> constexpr int64_t row_stride = tile + spill<T>;

typedef uint16_t bfloat16;
LOGSPARSE_INLINE float widen(float x) { return x; }
LOGSPARSE_INLINE double widen(double x) { return x; }
LOGSPARSE_INLINE float widen(bfloat16 x) {
  const uint32_t bits = uint32_t(x) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}
LOGSPARSE_INLINE void narrow(float x, float* y) { *y = x; }
LOGSPARSE_INLINE void narrow(double x, double* y) { *y = x; }
LOGSPARSE_INLINE void narrow(float x, bfloat16* y) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  *y = x != x ? bfloat16(0x7FC0) : bfloat16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);  // nearest, ties to even
}

template <class T> LOGSPARSE_INLINE Vec<T> load_wide(const T* p) { return load(p); }
template <class T> LOGSPARSE_INLINE Vec<T> load_wide(const bfloat16* p) {
  typedef bfloat16 Loose __attribute__((vector_size(LOGSPARSE_BYTES / 2), aligned(2), may_alias));
  return (Vec<T>)(__builtin_convertvector(*reinterpret_cast<const Loose*>(p), Bits<T>) << 16);
}

// One head of a View, as stored.
template <class S> struct Head {
  S* data;
  int64_t row, channel;
  Head(const View& view, int64_t batch, int64_t head)
      : data(static_cast<S*>(view.data) + batch * view.batch + head * view.head), row(view.row), channel(view.channel) {}
};

template <class T> struct Packed {
  T* data;
  int64_t width;
  int64_t block_size() const { return width * row_stride<T>; }
  static int64_t size(int64_t blocks, int64_t width) { return (blocks + 2) * width * row_stride<T>; }
  T* block(int64_t b) const { return data + (b + 1) * block_size(); }
  const T* at(int64_t position) const {  // from -tile on
    const uint64_t shifted = uint64_t(position + tile);
    return data + int64_t(shifted / tile) * block_size() + int64_t(shifted % tile);
  }
};

// Positions of the source around [from, to) fill the blocks [b, end); positions outside [from, to) become zero. Channel
// by channel through several blocks: the source is then read as few long streams, which the hardware can foresee.
template <class S, class T>
void pack(const Packed<T>& packed, int64_t b, int64_t end, const Head<S>& source, int64_t from, int64_t to, T factor) {
  for (int64_t c = 0; c < packed.width; ++c) {
    const S* const in = source.data + c * source.channel;
    for (int64_t block = b; block < end; ++block) {
      T* const row = packed.block(block) + c * row_stride<T>;
      const int64_t start = block * tile;
      if (source.row == 1 && from <= start && start + tile <= to) {
        for (int i = 0; i < tile; i += lanes<T>) store(row + i, load_wide<T>(in + start + i) * factor);
      } else {
        for (int64_t l = start; l < start + tile; ++l)
          row[l - start] = l >= from && l < to ? T(widen(in[l * source.row]) * factor) : T(0);
      }
      T* const before = packed.block(block - 1) + c * row_stride<T> + tile;
      for (int i = 0; i < spill<T>; i += lanes<T>) store(before + i, load(row + i));
    }
  }
}

// The blocks before the first and after the last stay zero; only what they share with a neighbour is written by pack.
template <class T> void clear_ends(const Packed<T>& packed, int64_t blocks) {
  std::memset(packed.block(-1), 0, packed.block_size() * sizeof(T));
  std::memset(packed.block(blocks), 0, packed.block_size() * sizeof(T));
  for (int64_t c = 0; c < packed.width; ++c)
    std::memset(packed.block(blocks - 1) + c * row_stride<T> + tile, 0, spill<T> * sizeof(T));
}

// Positions [lo, hi) of a tile go to rows start + lo ... of the target.
template <class S, class T>
void unpack(const T* block, int64_t width, const Head<S>& target, int64_t start, int64_t lo, int64_t hi, T factor) {
  for (int64_t c = 0; c < width; ++c) {
    const T* row = block + c * row_stride<T>;
    S* out = target.data + start * target.row + c * target.channel;
    if (target.row == 1) {
      for (int64_t i = lo; i < hi; ++i) narrow(row[i] * factor, out + i);
    } else {
      for (int64_t i = lo; i < hi; ++i) narrow(row[i] * factor, out + i * target.row);
    }
  }
}

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

// How many distances the next group takes, so that no group is left nearly empty: 7 is 4 + 3, not 6 + 1.
LOGSPARSE_INLINE int64_t group_size(int64_t left) {
  const int64_t groups = (left + group_max - 1) / group_max;
  return (left + groups - 1) / groups;
}

#define LOGSPARSE_EACH_GROUP(G, call)                                                         \
  switch (G) {                                                                                \
    case 1: call(1); break;                                                                   \
    case 2: call(2); break;                                                                   \
    case 3: call(3); break;                                                                   \
    case 4: call(4); break;                                                                   \
    case 5: call(5); break;                                                                   \
    default: call(6); break;                                                                  \
  }

// Which cells a tile meets at distance s: position i of the tile and position start + sign * s + i of the other side.
// Rows look back (sign -1, cells before 0 do not exist), keys look forward (sign 1, rows from `length` on do not exist).
struct Reach {
  int64_t start, length;
  int sign;
  template <class T> LOGSPARSE_INLINE int64_t begin(int64_t s) const {  // first pair with a cell in it
    return sign < 0 && s > start ? (s - start) / pair<T> * pair<T> : 0;
  }
  LOGSPARSE_INLINE int64_t end(int64_t s) const { return sign > 0 && length - start - s < tile ? length - start - s : tile; }
};

// rows[m] = the products of the tile with distance m. Pairs without a cell in any distance of a group are left as they are.
template <class T>
void tile_dots(const T* a, const Packed<T>& other, Reach reach, const int64_t* distances, int64_t count, T* const* rows) {
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
