// Levels, means and 1 / dispersions -> quantiles of negative binomial counts, by the definitions of
// model/inverse_cdf.py; -1 where its bisection must decide.
#pragma once
#include <math.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace logsparse {

struct CountsProblem {
  int64_t count = 0;
  const double *level = nullptr, *mean = nullptr, *r = nullptr;
  double* out = nullptr;
  double small = 0;     // below this mean the reference sums probabilities too, up to twice this count
  double lopsided = 0;  // from this ratio of the parameters on, the reference uses the gamma limit
  int threads = 1;
};

// Sums the probabilities of one distribution upwards; rising levels continue where the last one ended.
class CountWalk {
 public:
  CountWalk(const CountsProblem& p, double mean, double r) : p_(&p), m_(mean), r_(r), share_(mean / (r + mean)) {
    if (m_ < p_->small) {
      probability_ = std::exp(-r_ * std::log1p(m_ / r_));
    } else {
      // Less than 1e-12 lies below: the lower tail is lighter than that of a normal distribution.
      count_ = std::max(0.0, std::floor(m_ - 7.5 * std::sqrt(m_ + m_ * m_ / r_)));
      if (!(m_ < count_ + longest)) return;  // too far to sum, or NaN
      probability_ = std::exp(log_gamma(count_ + r_) - log_gamma(r_) - log_gamma(count_ + 1) -
                              r_ * std::log1p(m_ / r_) - count_ * std::log1p(r_ / m_));
    }
    end_ = count_ + longest;
    total_ = probability_;
    open_ = true;
  }

  double at(double level) {
    if (!open_) return -1;
    const double summed = m_ < p_->small ? 2 * p_->small - 1 : -1;
    // In the order of the reference where it sums too, so that both round alike.
    while (!(total_ >= level) && count_ < summed) step(probability_ * share_ * (r_ + count_) / (count_ + 1));
    while (!(total_ >= level)) {
      if (count_ >= end_) return -1;
      step(probability_ * (share_ * ((r_ + count_) / (count_ + 1))));
    }
    if (count_ <= summed) return count_;
    // Where a total is this close to the level, the reference may round, or approximate, to the other side.
    const bool by_limit = uses_limit(count_);
    const double close = by_limit ? 5e-6 : 1e-10;
    if (level - before_ > close && total_ - level > close) return count_;
    return by_limit ? settled(level) : -1;
  }

  bool is_of(double mean, double r) const { return mean == m_ && r == r_; }

 private:
  static constexpr double longest = 4096;

  void step(double probability) { probability_ = probability, before_ = total_, total_ += probability, ++count_; }

  // lgamma without its global sign, which threads would share.
  static double log_gamma(double x) {
    int sign;
    return lgamma_r(x, &sign);
  }

  bool uses_limit(double count) const { return count + 1 > p_->lopsided * (r_ + 1) || r_ > p_->lopsided * (count + 2); }

  double settled(double level) const {
    double k = count_;
    for (int tries = 0; tries < 8; ++tries) {
      if (!uses_limit(k) || (k > 0 && !uses_limit(k - 1))) return -1;
      if (k > 0 && limit(k - 1) >= level)
        --k;
      else if (limit(k) < level)
        ++k;
      else
        return k;
    }
    return -1;
  }

  // P(X <= count) as the reference computes it for lopsided parameters.
  double limit(double count) const {
    const double both = r_ + m_;
    return count + 1 > p_->lopsided * (r_ + 1) ? gamma_limit(r_, count + 1, r_ / both, m_ / both)
                                               : 1 - gamma_limit(count + 1, r_, m_ / both, r_ / both);
  }

  static double gamma_limit(double a, double b, double x, double y) {
    const double many = b + (a - 1) / 2, reach = -many * (x < 0.5 ? std::log1p(-x) : std::log(y));
    const double density = std::exp(a * std::log(reach) - reach - log_gamma(a));
    return lower_gamma(a, reach) - density * (a - 1) * (a + 1 + reach) / (24 * many * many);
  }

  // The regularized lower incomplete gamma function: a series below its mean, Lentz's continued fraction above.
  static double lower_gamma(double a, double x) {
    const double front = std::exp(a * std::log(x) - x - log_gamma(a));
    constexpr int rounds = 10000;
    constexpr double precise = 1e-16;
    if (x < a + 1) {
      double term = 1 / a, sum = term;
      for (int n = 1; n < rounds && term > precise * sum; ++n) term *= x / (a + n), sum += term;
      return front * sum;
    }
    double b = x + 1 - a, upper = 1e300, lower = 1 / b, fraction = lower;
    for (int n = 1; n < rounds; ++n) {
      const double part = -n * (n - a);
      b += 2;
      lower = 1 / (part * lower + b), upper = b + part / upper;
      const double change = lower * upper;
      fraction *= change;
      if (std::fabs(change - 1) < 4 * precise) break;
    }
    return 1 - front * fraction;
  }

  const CountsProblem* p_;
  double m_, r_, share_;
  double count_ = 0, end_ = 0, probability_ = 0, total_ = 0, before_ = 0;
  bool open_ = false;
};

inline void find_counts(const CountsProblem& p) {
  constexpr int64_t block = 4096;
  // A result does not depend on the block: a walk that continues sums the same numbers as one from the start.
#pragma omp parallel for num_threads(p.threads) schedule(dynamic) if (p.threads > 1 && p.count > block)
  for (int64_t begin = 0; begin < p.count; begin += block) {
    CountWalk walk(p, p.mean[begin], p.r[begin]);
    for (int64_t i = begin; i < std::min(begin + block, p.count); ++i) {
      const bool goes_on = i == begin || (walk.is_of(p.mean[i], p.r[i]) && p.level[i] >= p.level[i - 1]);
      if (!goes_on) walk = CountWalk(p, p.mean[i], p.r[i]);
      p.out[i] = walk.at(p.level[i]);
    }
  }
}

}  // namespace logsparse
