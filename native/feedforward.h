// The residual stream x and the results of the heads -> the stream after a block: merge of the heads, residual, norm,
// feed-forward, residual, norm; and the gradients. Positions are independent: a tile of them passes through every step
// while it is in the cache. The backward pass recomputes the tile; nothing is kept between the passes.
//
//   sum = x + keep_merged * (merge . gathered + merge_bias)      normed = norm(sum)
//   hidden = relu(widen . normed + widen_bias)
//   out = (pre ? sum : normed) + keep_fed * (narrow . hidden + narrow_bias), and its norm unless pre
#pragma once
#include <cstring>

#include "norm.h"
#include "packed.h"
#include "product.h"
#include "scratch.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

template <class T> struct FeedForward {
  static constexpr int w = lanes<T>;
  static constexpr int64_t stride = row_stride<T>;
  const FeedForwardProblem& p;
  const int64_t tiles;  // per batch row
  T *x, *gathered, *normed, *hidden, *fed, *keep_merged, *keep_fed, *first_mean, *first_scale, *last_mean, *last_scale;
  T *grad, *grad_sum, *grad_normed, *grad_hidden, *turned;
  int64_t columns = 0;  // positions of the tile within the sequence

  FeedForward(const FeedForwardProblem& problem, Pieces& own, bool backward)
      : p(problem), tiles((p.length + tile - 1) / tile) {
    const auto block = [&](int64_t width) { return own.take<T>(Packed<T>::size(1, width)) + width * stride; };
    x = block(p.width), gathered = block(p.inner), normed = block(p.width), hidden = block(p.wide),
    fed = block(p.width);
    keep_merged = block(p.width), keep_fed = block(p.width);
    for (T** row : {&first_mean, &first_scale, &last_mean, &last_scale}) *row = own.take<T>(tile);
    if (!backward) return;
    grad = block(p.width), grad_sum = block(p.width), grad_normed = block(p.width), grad_hidden = block(p.wide);
    turned = own.take<T>(tile * p.width_room());
  }

  int64_t tasks() const { return p.batch * tiles; }

  const T* weights(const void* data) const { return static_cast<const T*>(data); }

  // A tile of a (batch, position, channel) tensor, channel-first; positions after the end are zeros.
  void fetch(T* block, const View& view, int64_t width, int64_t batch, int64_t start) {
    pack(Packed<T>{block - width * stride, width}, 0, 1, at(view, batch, start), 0, columns, T(1));
  }
  void put(const T* block, const View& view, int64_t width, int64_t batch, int64_t start) {
    unpack(block, width, at(view, batch, start), 0, 0, columns, T(1));
  }
  Head<T> at(const View& view, int64_t batch, int64_t start) const {
    return {static_cast<T*>(view.data) + batch * view.batch + start * view.row, view.row, view.channel};
  }

  template <class Each> void each(int64_t width, Each each) {
    for (int64_t c = 0; c < width; ++c)
      for (int64_t i = c * stride; i < c * stride + tile; i += w) each(c, i);
  }
  // out = bias (or itself) + factors . terms
  void apply(T* out, int64_t rows, Factors<T> factors, const T* terms, int64_t count, const void* bias = nullptr) {
    multiply(out, stride, rows, tile, factors, Terms<T>{terms, count, stride, 1}, weights(bias));
  }
  void clear(T* block, int64_t width) { std::memset(block, 0, width * stride * sizeof(T)); }

  // out = (block - mean) * scale * gain + shift; mean and scale are kept per position.
  void norm(const T* block, T* out, T* mean, T* scale, const void* gain, const void* shift) {
    for (int i = 0; i < tile; i += w) {
      const ColumnNorm<T> normal(block + i, stride, p.width, p.epsilon);
      store(mean + i, normal.mean), store(scale + i, normal.scale);
      for (int64_t c = 0; c < p.width; ++c)
        store(out + c * stride + i, normal(load(block + c * stride + i), weights(gain)[c], weights(shift)[c]));
    }
  }

  // Everything up to `hidden`, the wide layer; `x` holds the sum.
  void forward_tile(int64_t batch, int64_t start) {
    columns = p.length - start < tile ? p.length - start : tile;
    fetch(x, p.x, p.width, batch, start);
    fetch(gathered, p.gathered, p.inner, batch, start);
    T* const merged = fed;  // unused until the feed-forward
    apply(merged, p.width, {weights(p.merge), 1, p.inner}, gathered, p.inner, p.merge_bias);
    const bool drops = p.keep_merged.data != nullptr;
    if (drops) fetch(keep_merged, p.keep_merged, p.width, batch, start);
    each(p.width, [&](int64_t, int64_t i) {
      store(x + i, load(x + i) + (drops ? load(merged + i) * load(keep_merged + i) : load(merged + i)));
    });
    norm(x, normed, first_mean, first_scale, p.first_gain, p.first_shift);
    apply(hidden, p.wide, {weights(p.widen), 1, p.width}, normed, p.width, p.widen_bias);
    each(p.wide, [&](int64_t, int64_t i) { store(hidden + i, larger<T>(load(hidden + i), Vec<T>{})); });
    if (p.keep_fed.data != nullptr) fetch(keep_fed, p.keep_fed, p.width, batch, start);
  }

  // The stream before the last norm, in `fed`.
  void feed() {
    apply(fed, p.width, {weights(p.narrow), 1, p.wide}, hidden, p.wide, p.narrow_bias);
    const T* const stream = p.pre ? x : normed;
    const bool drops = p.keep_fed.data != nullptr;
    each(p.width, [&](int64_t, int64_t i) {
      store(fed + i, load(stream + i) + (drops ? load(fed + i) * load(keep_fed + i) : load(fed + i)));
    });
  }

  void forward(int64_t task) {
    const int64_t batch = task / tiles, start = task % tiles * tile;
    forward_tile(batch, start);
    feed();
    if (!p.pre) norm(fed, fed, last_mean, last_scale, p.last_gain, p.last_shift);
    put(fed, p.out, p.width, batch, start);
  }

  void backward(int64_t task, T* sums) {
    const int64_t batch = task / tiles, start = task % tiles * tile, room = p.width_room();
    forward_tile(batch, start);
    T* const merge_sums = sums;
    T* const widen_sums = merge_sums + p.inner * room;
    T* const narrow_sums = widen_sums + p.wide * room;
    T* const rows = narrow_sums + p.wide * room;  // vectors of `room`: see FeedForwardProblem
    fetch(grad, p.grad_out, p.width, batch, start);
    if (!p.pre) {
      // Only the statistics of the last norm are needed.
      feed();
      norm(fed, grad_normed, last_mean, last_scale, p.last_gain, p.last_shift);
      norm_backward(grad, fed, last_mean, last_scale, p.last_gain, rows + 4 * room, rows + 5 * room);
    }
    // grad is now that of the stream before the last norm: of the residual and, times keep_fed, of the feed-forward.
    T* const of_fed = grad_sum;
    kept_gradient(of_fed, grad, p.keep_fed, keep_fed);
    row_sums(of_fed, p.width, rows + 1 * room);
    turn(of_fed);
    outer(narrow_sums, hidden, p.wide);
    clear(grad_hidden, p.wide);
    apply(grad_hidden, p.wide, {weights(p.narrow), p.wide, 1}, of_fed, p.width);
    each(p.wide, [&](int64_t, int64_t i) {
      store(grad_hidden + i, load(hidden + i) > Vec<T>{} ? load(grad_hidden + i) : Vec<T>{});
    });
    row_sums(grad_hidden, p.wide, rows + 6 * room);
    turn(normed);
    outer(widen_sums, grad_hidden, p.wide);
    if (p.pre)
      clear(grad_normed, p.width);
    else
      std::memcpy(grad_normed, grad, p.width * stride * sizeof(T));
    apply(grad_normed, p.width, {weights(p.widen), 1 * p.width, 1}, grad_hidden, p.wide);
    norm_backward(grad_normed, x, first_mean, first_scale, p.first_gain, rows + 2 * room, rows + 3 * room);
    if (p.pre)
      each(p.width, [&](int64_t, int64_t i) { store(grad_normed + i, load(grad_normed + i) + load(grad + i)); });
    put(grad_normed, p.grad_x, p.width, batch, start);
    T* const of_merged = grad_sum;
    kept_gradient(of_merged, grad_normed, p.keep_merged, keep_merged);
    row_sums(of_merged, p.width, rows);
    turn(of_merged);
    outer(merge_sums, gathered, p.inner);
    clear(gathered, p.inner);
    apply(gathered, p.inner, {weights(p.merge), p.inner, 1}, of_merged, p.width);
    put(gathered, p.grad_gathered, p.inner, batch, start);
  }

  void kept_gradient(T* out, const T* of, const View& kept, const T* keep) {
    each(p.width,
         [&](int64_t, int64_t i) { store(out + i, kept.data ? load(of + i) * load(keep + i) : load(of + i)); });
  }

  // Turns the gradient of the result of a norm into that of its input, in place; adds up those of gain and shift.
  void norm_backward(T* of, const T* input, const T* mean, const T* scale, const void* gain, T* gain_sums,
                     T* shift_sums) {
    for (int64_t c = 0; c < p.width; ++c) {
      Vec<T> gains{}, shifts{};
      for (int i = 0; i < tile; i += w) {
        const Vec<T> g = load(of + c * stride + i);
        gains += g * (load(input + c * stride + i) - load(mean + i)) * load(scale + i), shifts += g;
      }
      for (int lane = 0; lane < w; ++lane) gain_sums[c] += gains[lane], shift_sums[c] += shifts[lane];
    }
    for (int i = 0; i < tile; i += w) {
      const Vec<T> middle = load(mean + i), factor = load(scale + i);
      Vec<T> sum{}, along{};
      for (int64_t c = 0; c < p.width; ++c) {
        const Vec<T> g = load(of + c * stride + i) * weights(gain)[c];
        sum += g, along += g * (load(input + c * stride + i) - middle) * factor;
      }
      sum /= T(p.width), along /= T(p.width);
      for (int64_t c = 0; c < p.width; ++c) {
        const Vec<T> g = load(of + c * stride + i) * weights(gain)[c];
        store(of + c * stride + i, factor * (g - sum - (load(input + c * stride + i) - middle) * factor * along));
      }
    }
  }

  void row_sums(const T* block, int64_t width, T* sums) {
    for (int64_t c = 0; c < width; ++c) {
      Vec<T> total{};
      for (int i = 0; i < tile; i += w) total += load(block + c * stride + i);
      for (int lane = 0; lane < w; ++lane) sums[c] += total[lane];
    }
  }

  // To position-major: each position becomes a row of vectors.
  void turn(const T* block) { LOGSPARSE_ISA::turn(block, stride, turned, p.width_room(), p.width, tile); }

  // sums[r][c] += sum over positions of rows[r] * turned[c].
  void outer(T* sums, const T* rows, int64_t count) {
    multiply(sums, p.width_room(), count, p.width, Factors<T>{rows, 1, stride},
             Terms<T>{turned, tile, p.width_room(), 1});
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
