// Attention dropout: which cells stay is a hash of (seed, batch, head, position, distance), so that every pass and every
// backend sees the same mask and none has to be stored. attention/dropout.py states the rule and holds its twin.
#pragma once
#include "simd.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

template <class T> struct Dropout {
  bool on;
  uint32_t threshold;  // of 2^24
  T factor;            // 1 / (1 - rate) on the cells that stay
  uint32_t key = 0;
  int64_t begin = 0;  // of the head's span: the rule counts positions from the start of the memory

  explicit Dropout(double rate)
      : on(rate > 0), threshold(uint32_t(rate * 16777216.0 + 0.5)), factor(T(1.0 / (1.0 - rate))) {}

  void enter(uint64_t seed, int64_t batch, int64_t head, int64_t from) {
    begin = from;
    key = mix(mix(uint32_t(seed)) ^ uint32_t(seed >> 32));
    key = mix(key + uint32_t(batch) * golden);
    key = mix(key + uint32_t(head) * golden);
  }

  // The factor (0 or 1 / (1 - rate)) of the cells (position ... , distance) for one vector of positions.
  LOGSPARSE_INLINE Vec<T> factors(int64_t position, int64_t distance) const {
    constexpr uint32_t low = 0xFFFFFFFFu;
    Bits<T> positions;
    for (int i = 0; i < lanes<T>; ++i) positions[i] = uint32_t(begin + position + i);
    const Bits<T> row = mix<Bits<T>>(positions ^ key);
    const Bits<T> cell = mix<Bits<T>>((row + uint32_t(distance) * golden) & low) >> 8;
    return (Mask<T>)(cell) >= (Mask<T>)(Bits<T>{} + threshold) ? all<T>(factor) : Vec<T>{};
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
