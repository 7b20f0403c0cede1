// Normal deviates and degrees of freedom -> quantiles of the Student-t distribution, by the surface described in
// model/inverse_cdf.py.
#pragma once
#include <algorithm>
#include <cstring>

#include "problem.h"
#include "simd.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

struct StudentT {
  static constexpr int w = lanes<double>, most = StudentTProblem::most;
  typedef Vec<double> V;
  const StudentTProblem& p;

  // Elementwise: a result does not depend on its neighbours.
  V at(V deviate, V df) const {
    const V place = 2 * (1 / df - p.from) / (p.to - p.from) - 1, ratio = deviate / p.farthest;
    V share[most];
    for (int64_t d = 0; d < p.deviates; ++d) share[d] = all<double>(p.surface[d]);
    V before = all<double>(1), last = place;
    for (int64_t n = 1; n < p.dfs; ++n) {
      const double* const row = p.surface + n * p.deviates;
      for (int64_t d = 0; d < p.deviates; ++d) share[d] += row[d] * last;
      const V next = 2 * place * last - before;
      before = last, last = next;
    }
    // Clenshaw's recurrence for an even function of the deviate.
    const V x = 2 * ratio * ratio - 1;
    V one{}, two{};
    for (int64_t d = p.deviates - 1; d > 0; --d) {
      const V next = share[d] + 2 * x * one - two;
      two = one, one = next;
    }
    const V stretch = share[0] + x * one - two;
    return deviate * exp2<double>(stretch * 1.4426950408889634074);
  }

  void run() const {
    for (int64_t i = 0; i < p.count; i += w) {
      const int64_t here = std::min<int64_t>(w, p.count - i);
      double deviate[w] = {}, df[w];
      for (double& one : df) one = 2;
      std::memcpy(deviate, p.deviate + i, here * sizeof(double)), std::memcpy(df, p.df + i, here * sizeof(double));
      double out[w];
      store(out, at(load(deviate), load(df)));
      std::memcpy(p.out + i, out, here * sizeof(double));
    }
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
