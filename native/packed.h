// Strided memory of any layout and type <-> packed heads.
//
// A head is packed as blocks of `tile` positions, each block channel-first: block b, channel c, position l is at
// [b][c][l]. A row repeats the first `spill` positions of the next block, so that a vector pair starting anywhere in a
// block is contiguous. A zero block precedes the first and follows the last, so that cells outside the sequence read
// zeros. In this layout no length makes channels collide in the cache, and a distance touches few pages.
#pragma once
#include <cstring>
#include <utility>

#include "problem.h"
#include "scratch.h"
#include "simd.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

constexpr int tile = 64;  // positions per block
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
  // Head number `head` of all batch rows, from position `from` on.
  Head(const View& view, const Problem& p, int64_t head, int64_t from)
      : data(static_cast<S*>(view.data) + head / p.heads * view.batch + head % p.heads * view.head + from * view.row),
        row(view.row),
        channel(view.channel) {}
  Head(S* first, int64_t row_stride, int64_t channel_stride) : data(first), row(row_stride), channel(channel_stride) {}
};

template <class T> struct Packed {
  T* data;
  int64_t width;
  static Packed take(Pieces& pieces, int64_t blocks, int64_t width) {
    return {pieces.take<T>(size(blocks, width)), width};
  }
  int64_t block_size() const { return width * row_stride<T>; }
  static int64_t size(int64_t blocks, int64_t width) { return (blocks + 2) * width * row_stride<T>; }
  T* block(int64_t b) const { return data + (b + 1) * block_size(); }
  const T* at(int64_t position) const {  // from -tile on
    const uint64_t shifted = uint64_t(position + tile);
    return data + int64_t(shifted / tile) * block_size() + int64_t(shifted % tile);
  }
};

// Row-major sources are transposed in squares of lanes x lanes: zipping the upper with the lower half of the rows
// log2(lanes) times.
template <class T, size_t... I> LOGSPARSE_INLINE void zip(Vec<T>& a, Vec<T>& b, std::index_sequence<I...>) {
  constexpr int w = lanes<T>;
  const Vec<T> low = __builtin_shufflevector(a, b, (I % 2 * w + I / 2)...);
  const Vec<T> high = __builtin_shufflevector(a, b, (I % 2 * w + w / 2 + I / 2)...);
  a = low, b = high;
}
template <class T> LOGSPARSE_INLINE void transpose(Vec<T> (&x)[lanes<T>]) {
  constexpr int w = lanes<T>;
#pragma GCC unroll 4
  for (int step = 1; step < w; step *= 2) {
    Vec<T> y[w];
#pragma GCC unroll 16
    for (int i = 0; i < w / 2; ++i) {
      y[2 * i] = x[i], y[2 * i + 1] = x[i + w / 2];
      zip<T>(y[2 * i], y[2 * i + 1], std::make_index_sequence<w>());
    }
#pragma GCC unroll 16
    for (int i = 0; i < w; ++i) x[i] = y[i];
  }
}

// to[c][r] = from[r][c], for rows r and columns c.
template <class T> void turn(const T* from, int64_t from_row, T* to, int64_t to_row, int64_t rows, int64_t columns) {
  constexpr int w = lanes<T>;
  const int64_t whole_rows = rows / w * w, whole_columns = columns / w * w;
  for (int64_t r = 0; r < whole_rows; r += w) {
    for (int64_t c = 0; c < whole_columns; c += w) {
      Vec<T> x[w];
#pragma GCC unroll 16
      for (int k = 0; k < w; ++k) x[k] = load(from + (r + k) * from_row + c);
      transpose<T>(x);
#pragma GCC unroll 16
      for (int k = 0; k < w; ++k) store(to + (c + k) * to_row + r, x[k]);
    }
    for (int64_t c = whole_columns; c < columns; ++c)
      for (int k = 0; k < w; ++k) to[c * to_row + r + k] = from[(r + k) * from_row + c];
  }
  for (int64_t r = whole_rows; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * to_row + r] = from[r * from_row + c];
}

// Packs the full squares of a row-major tile; returns the number of channels done.
template <class S, class T> int64_t pack_squares(T* block, int64_t width, const S* in, int64_t stride, T factor) {
  constexpr int w = lanes<T>;
  const int64_t whole = width / w * w;
  for (int64_t c = 0; c < whole; c += w)
    for (int i = 0; i < tile; i += w) {
      Vec<T> x[w];
#pragma GCC unroll 16
      for (int r = 0; r < w; ++r) x[r] = load_wide<T>(in + (i + r) * stride + c);
      transpose<T>(x);
#pragma GCC unroll 16
      for (int r = 0; r < w; ++r) store(block + (c + r) * row_stride<T> + i, x[r] * factor);
    }
  return whole;
}
template <class T> int64_t unpack_squares(const T* block, int64_t width, T* out, int64_t stride, T factor) {
  constexpr int w = lanes<T>;
  const int64_t whole = width / w * w;
  for (int i = 0; i < tile; i += w)
    for (int64_t c = 0; c < whole; c += w) {
      Vec<T> x[w];
#pragma GCC unroll 16
      for (int r = 0; r < w; ++r) x[r] = load(block + (c + r) * row_stride<T> + i) * factor;
      transpose<T>(x);
#pragma GCC unroll 16
      for (int r = 0; r < w; ++r) store(out + (i + r) * stride + c, x[r]);
    }
  return whole;
}
template <class T> int64_t unpack_squares(const T*, int64_t, bfloat16*, int64_t, T) { return 0; }

// Fills the blocks [b, end) from the source; positions outside [from, to) become zero. Several blocks per channel: the
// source is then read in few long streams, which the hardware prefetches.
template <class S, class T>
void pack(const Packed<T>& packed, int64_t b, int64_t end, const Head<S>& source, int64_t from, int64_t to, T factor) {
  int64_t done = 0;
  const auto inside = [&](int64_t block) { return from <= block * tile && (block + 1) * tile <= to; };
  if (source.channel == 1 && source.row != 1)
    for (int64_t block = b; block < end; ++block)
      if (inside(block))
        done = pack_squares(packed.block(block), packed.width, source.data + block * tile * source.row, source.row,
                            factor);
  for (int64_t c = 0; c < packed.width; ++c) {
    const S* const in = source.data + c * source.channel;
    for (int64_t block = b; block < end; ++block) {
      T* const row = packed.block(block) + c * row_stride<T>;
      const int64_t start = block * tile;
      if (source.row == 1 && inside(block)) {
        for (int i = 0; i < tile; i += lanes<T>) store(row + i, load_wide<T>(in + start + i) * factor);
      } else if (c >= done || !inside(block)) {
        for (int64_t l = start; l < start + tile; ++l)
          row[l - start] = l >= from && l < to ? T(widen(in[l * source.row]) * factor) : T(0);
      }
      T* const before = packed.block(block - 1) + c * row_stride<T> + tile;
      for (int i = 0; i < spill<T>; i += lanes<T>) store(before + i, load(row + i));
    }
  }
}

// Zeros the blocks before the first and after the last; pack writes only what they share with a neighbour.
template <class T> void clear_ends(const Packed<T>& packed, int64_t blocks) {
  std::memset(packed.block(-1), 0, packed.block_size() * sizeof(T));
  std::memset(packed.block(blocks), 0, packed.block_size() * sizeof(T));
  for (int64_t c = 0; c < packed.width; ++c)
    std::memset(packed.block(blocks - 1) + c * row_stride<T> + tile, 0, spill<T> * sizeof(T));
}

// Writes positions [lo, hi) of a tile to rows start + lo ... of the target, or adds them if `add`.
template <class S, class T>
void unpack(const T* block, int64_t width, const Head<S>& target, int64_t start, int64_t lo, int64_t hi, T factor,
            bool add = false) {
  S* const first = target.data + start * target.row;
  int64_t c = 0;
  if (add) {
    for (; c < width; ++c)
      for (int64_t i = lo; i < hi; ++i) {
        S* const to = first + c * target.channel + i * target.row;
        narrow(T(widen(*to)) + block[c * row_stride<T> + i] * factor, to);
      }
    return;
  }
  if (target.channel == 1 && target.row != 1 && hi - lo == tile)
    c = unpack_squares(block, width, first, target.row, factor);
  for (; c < width; ++c) {
    const T* row = block + c * row_stride<T>;
    S* out = first + c * target.channel;
    if (target.row == 1) {
      for (int64_t i = lo; i < hi; ++i) narrow(row[i] * factor, out + i);
    } else {
      for (int64_t i = lo; i < hi; ++i) narrow(row[i] * factor, out + i * target.row);
    }
  }
}

// Zeros rows [0, count): results and gradients of padding.
template <class S> void clear_rows(const Head<S>& target, int64_t width, int64_t count) {
  for (int64_t l = 0; l < count; ++l)
    for (int64_t c = 0; c < width; ++c) target.data[l * target.row + c * target.channel] = S(0);
}

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
