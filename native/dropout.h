// Attention dropout: whether a cell is kept is a hash of (seed, batch, head, position, distance), so that all passes
// and backends compute the same mask and none is stored. attention/plain.py states the rule and implements it in
// torch.
#pragma once
#include "simd.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

template <class T> struct Dropout {
  bool on;
  uint32_t threshold;  // out of 2^24
  T factor;            // 1 / (1 - rate), for the cells that are kept
  uint32_t key = 0;
  int64_t begin = 0;  // of the span: the rule counts positions from the start of the batch row

  explicit Dropout(double rate)
      : on(rate > 0), threshold(uint32_t(rate * 16777216.0 + 0.5)), factor(T(1.0 / (1.0 - rate))) {}

  void enter(uint64_t seed, int64_t batch, int64_t head, int64_t from) {
    begin = from;
    key = mix(mix(uint32_t(seed)) ^ uint32_t(seed >> 32));
    key = mix(key + uint32_t(batch) * golden);
    key = mix(key + uint32_t(head) * golden);
  }

  // The part of the hash of a vector of positions that is the same for all distances.
  LOGSPARSE_INLINE Bits<T> row(int64_t position) const {
    Bits<T> lane;
    for (int i = 0; i < lanes<T>; ++i) lane[i] = uint32_t(i);
    return mix<Bits<T>>(((lane + uint32_t(begin + position)) & 0xFFFFFFFFu) ^ key);
  }

  // Factors (0 or 1 / (1 - rate)) of one vector of positions that share a distance (`growth` 0) or a key (`growth` 1:
  // the distance grows by 1 per lane).
  LOGSPARSE_INLINE Vec<T> cell(Bits<T> row, int64_t distance, uint32_t growth = 0) const {
    Bits<T> lane;
    for (int i = 0; i < lanes<T>; ++i) lane[i] = uint32_t(i);
    const Bits<T> step = lane * (growth * golden) + uint32_t(distance) * golden;
    const Bits<T> hash = mix<Bits<T>>((row + step) & 0xFFFFFFFFu) >> 8;
    return (Mask<T>)(hash) >= (Mask<T>)(Bits<T>{} + threshold) ? all<T>(factor) : Vec<T>{};
  }
  LOGSPARSE_INLINE Vec<T> factors(int64_t position, int64_t distance, uint32_t growth = 0) const {
    return cell(row(position), distance, growth);
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
