// Channel-first columns -> the same, normalized over their channels. One vector of columns at a time.
#pragma once
#include <cmath>

#include "simd.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

// Mean and 1 / standard deviation of each column; channel c is at block + c * stride.
template <class T> struct ColumnNorm {
  Vec<T> mean, scale;

  LOGSPARSE_INLINE ColumnNorm(const T* block, int64_t stride, int64_t width, double epsilon) {
    Vec<T> sum{}, square{};
    for (int64_t c = 0; c < width; ++c) sum += load(block + c * stride);
    mean = sum / T(width);
    for (int64_t c = 0; c < width; ++c) {
      const Vec<T> off = load(block + c * stride) - mean;
      square += off * off;
    }
    scale = square / T(width) + T(epsilon);
    for (int lane = 0; lane < lanes<T>; ++lane) scale[lane] = T(1) / std::sqrt(scale[lane]);
  }

  LOGSPARSE_INLINE Vec<T> operator()(Vec<T> x, T gain, T shift) const { return (x - mean) * scale * gain + shift; }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
