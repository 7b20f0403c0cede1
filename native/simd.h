// Vectors of the width of this build, with the few functions that the kernel needs (2^x, log2 x, the dropout hash).
// Compiler vector types, so that vectorization does not depend on the optimizer.
#pragma once
#include <cstdint>

#if defined(__AVX512F__)
#define LOGSPARSE_BYTES 64
#elif defined(__AVX2__)
#define LOGSPARSE_BYTES 32
#else
#define LOGSPARSE_BYTES 16
#endif
#define LOGSPARSE_INLINE inline __attribute__((always_inline))

namespace logsparse {
namespace LOGSPARSE_ISA {

template <class T> struct Lanes;
template <> struct Lanes<float> {
  typedef float Vec __attribute__((vector_size(LOGSPARSE_BYTES)));
  typedef float Loose __attribute__((vector_size(LOGSPARSE_BYTES), aligned(4), may_alias));
  typedef uint32_t Bits __attribute__((vector_size(LOGSPARSE_BYTES)));
  typedef int32_t Mask __attribute__((vector_size(LOGSPARSE_BYTES)));
  static constexpr int mantissa = 23, bias = 127, exp_terms = 7, log_terms = 5;
  static constexpr float round = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
};
template <> struct Lanes<double> {
  typedef double Vec __attribute__((vector_size(LOGSPARSE_BYTES)));
  typedef double Loose __attribute__((vector_size(LOGSPARSE_BYTES), aligned(8), may_alias));
  typedef uint64_t Bits __attribute__((vector_size(LOGSPARSE_BYTES)));
  typedef int64_t Mask __attribute__((vector_size(LOGSPARSE_BYTES)));
  static constexpr int mantissa = 52, bias = 1023, exp_terms = 13, log_terms = 12;
  static constexpr double round = 6755399441055744.0;  // 1.5 * 2^52
};
template <class T> using Vec = typename Lanes<T>::Vec;
template <class T> using Bits = typename Lanes<T>::Bits;
template <class T> using Mask = typename Lanes<T>::Mask;
template <class T> constexpr int lanes = LOGSPARSE_BYTES / sizeof(T);

template <class T> LOGSPARSE_INLINE Vec<T> load(const T* p) {
  return *reinterpret_cast<const typename Lanes<T>::Loose*>(p);
}
template <class T> LOGSPARSE_INLINE void store(T* p, Vec<T> x) { *reinterpret_cast<typename Lanes<T>::Loose*>(p) = x; }
// Keeps a vector that several products share in a register: otherwise GCC folds its load into each of them.
template <class V> LOGSPARSE_INLINE V in_register(V x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#endif
  return x;
}
// x - 0, not x + 0, which turns -0 into 0 and which the compiler therefore could not drop.
template <class T> LOGSPARSE_INLINE Vec<T> all(T x) { return x - Vec<T>{}; }
template <class T> LOGSPARSE_INLINE Vec<T> larger(Vec<T> a, Vec<T> b) { return a > b ? a : b; }
template <class T> LOGSPARSE_INLINE Vec<T> iota(T start) {
  Vec<T> x;
  for (int i = 0; i < lanes<T>; ++i) x[i] = start + T(i);
  return x;
}

// Taylor coefficients ln(2)^n / n! of 2^x; on [-1/2, 1/2] the first omitted term is below the rounding error.
constexpr double exp2_factor(int n) { return n == 0 ? 1.0 : exp2_factor(n - 1) * 0.693147180559945309417232 / n; }

template <class T, int n, int last> struct Exp2Poly {
  static LOGSPARSE_INLINE Vec<T> at(Vec<T> f) { return Exp2Poly<T, n + 1, last>::at(f) * f + T(exp2_factor(n)); }
};
template <class T, int last> struct Exp2Poly<T, last, last> {
  static LOGSPARSE_INLINE Vec<T> at(Vec<T>) { return all<T>(T(exp2_factor(last))); }
};

// 2^x for x below the largest exponent: exactly 0 on underflow, NaN for NaN (the comparison keeps NaN).
template <class T> LOGSPARSE_INLINE Vec<T> exp2(Vec<T> x) {
  using L = Lanes<T>;
  const Vec<T> lowest = all<T>(-T(L::bias));
  x = x < lowest ? lowest : x;
  const Vec<T> shifted = x + L::round;
  const Vec<T> fraction = x - (shifted - L::round);
  const Vec<T> rounding = all<T>(L::round);
  const Bits<T> whole = (Bits<T>)shifted - (Bits<T>)rounding + L::bias;
  return Exp2Poly<T, 0, L::exp_terms>::at(fraction) * (Vec<T>)(whole << L::mantissa);
}

// log2 x for normal x > 0, by the atanh series on [sqrt(1/2), sqrt(2)].
template <class T> LOGSPARSE_INLINE Vec<T> log2(Vec<T> x) {
  using L = Lanes<T>;
  typedef Bits<T> B;
  const Vec<T> half_root = all<T>(T(0.70710678118654752440));
  const B offset = (B)half_root;
  const B shifted = (B)x - offset;
  const Mask<T> exponent = (Mask<T>)shifted >> L::mantissa;
  const Vec<T> mantissa = (Vec<T>)((B)x - ((B)exponent << L::mantissa));
  const Vec<T> z = (mantissa - T(1)) / (mantissa + T(1)), zz = z * z;
  Vec<T> sum = all<T>(T(1) / T(2 * L::log_terms + 1));
#pragma GCC unroll 16
  for (int n = L::log_terms - 1; n >= 0; --n) sum = sum * zz + T(1) / T(2 * n + 1);
  return __builtin_convertvector(exponent, Vec<T>) + sum * z * T(2.8853900817779268147);
}

// The dropout hash of attention/plain.py: 32-bit arithmetic, also in 64-bit lanes.
template <class B> LOGSPARSE_INLINE B mix(B x) {
  constexpr uint32_t low = 0xFFFFFFFFu;
  x = ((x ^ (x >> 16)) * 0x7FEB352Du) & low;
  x = ((x ^ (x >> 15)) * 0x846CA68Bu) & low;
  return x ^ (x >> 16);
}
constexpr uint32_t golden = 0x9E3779B9u;

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
