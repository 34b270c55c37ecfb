// Attention in double, by its definition: the full matrix of probabilities of each document and the Jacobian of
// softmax. For tests only. A Mutation is one of the mistakes the tests must be able to see.
#pragma once

#include <cmath>
#include <vector>

#include "ops/testing.h"

namespace lazytrain::ops::testing {

struct AttentionCase {
  int64_t query_heads;
  int64_t kv_heads;
  int64_t head_dim;
  std::vector<int64_t> documents;

  int64_t tokens() const { return std::accumulate(documents.begin(), documents.end(), int64_t{0}); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }
};

enum class Mutation { kNone, kNoScale, kScaleTwice, kHeadsModulo, kDocumentLeak, kSeesNext, kMissesItself };

class AttentionReference {
 public:
  AttentionReference(const AttentionCase& c, const Matrix& q, const Matrix& k, const Matrix& v,
                     Mutation mutation = Mutation::kNone)
      : case_(c), q_(q), k_(k), v_(v), mutation_(mutation), out(q.rows, q.cols), lse(q.rows, c.query_heads) {
    for (int64_t t = 0; t < q.rows; ++t) {
      for (int64_t h = 0; h < c.query_heads; ++h) forward(t, h);
    }
  }

  struct Grads {
    Matrix q, k, v;
  };
  Grads backward(const Matrix& dout) const {
    Grads g{Matrix(q_.rows, q_.cols), Matrix(k_.rows, k_.cols), Matrix(v_.rows, v_.cols)};
    const int64_t d = case_.head_dim;
    for (int64_t t = 0; t < q_.rows; ++t) {
      for (int64_t h = 0; h < case_.query_heads; ++h) {
        const int64_t kv = kv_head(h) * d;
        const auto [first, p] = probabilities(t, h, nullptr);
        std::vector<double> dp(p.size(), 0.0);
        double mean = 0;
        for (size_t i = 0; i < p.size(); ++i) {
          const int64_t s = first + static_cast<int64_t>(i);
          for (int64_t j = 0; j < d; ++j) {
            dp[i] += dout.at(t, h * d + j) * v_.at(s, kv + j);
            g.v.at(s, kv + j) += p[i] * dout.at(t, h * d + j);
          }
          mean += p[i] * dp[i];
        }
        for (size_t i = 0; i < p.size(); ++i) {
          const int64_t s = first + static_cast<int64_t>(i);
          const double ds = p[i] * (dp[i] - mean) * factor();
          for (int64_t j = 0; j < d; ++j) {
            g.q.at(t, h * d + j) += ds * k_.at(s, kv + j);
            g.k.at(s, kv + j) += ds * q_.at(t, h * d + j);
          }
        }
      }
    }
    return g;
  }

 private:
  struct Row {
    int64_t first;
    std::vector<double> p;
  };

  double factor() const {
    if (mutation_ == Mutation::kNoScale) return 1;
    return mutation_ == Mutation::kScaleTwice ? case_.scale() * case_.scale() : case_.scale();
  }
  int64_t kv_head(int64_t h) const {
    return mutation_ == Mutation::kHeadsModulo ? h % case_.kv_heads : h / (case_.query_heads / case_.kv_heads);
  }
  Row probabilities(int64_t t, int64_t h, double* log_sum) const {
    int64_t first = 0, last = 0;
    for (const int64_t length : case_.documents) {
      first = last;
      last += length;
      if (t < last) break;
    }
    if (mutation_ == Mutation::kDocumentLeak) first = 0;
    int64_t end = t + 1;
    if (mutation_ == Mutation::kSeesNext) end = std::min(last, t + 2);
    if (mutation_ == Mutation::kMissesItself) end = std::max(first + 1, t);
    Row row{first, {}};
    double top = -std::numeric_limits<double>::infinity();
    for (int64_t s = first; s < end; ++s) {
      double score = 0;
      for (int64_t j = 0; j < case_.head_dim; ++j) {
        score += q_.at(t, h * case_.head_dim + j) * k_.at(s, kv_head(h) * case_.head_dim + j);
      }
      row.p.push_back(score * factor());
      top = std::max(top, row.p.back());
    }
    double sum = 0;
    for (double& p : row.p) sum += p = std::exp(p - top);
    for (double& p : row.p) p /= sum;
    if (log_sum != nullptr) *log_sum = top + std::log(sum);
    return row;
  }
  void forward(int64_t t, int64_t h) {
    const int64_t d = case_.head_dim;
    const auto [first, p] = probabilities(t, h, &lse.at(t, h));
    for (size_t i = 0; i < p.size(); ++i) {
      for (int64_t j = 0; j < d; ++j) {
        out.at(t, h * d + j) += p[i] * v_.at(first + static_cast<int64_t>(i), kv_head(h) * d + j);
      }
    }
  }

  AttentionCase case_;
  Matrix q_, k_, v_;
  Mutation mutation_;

 public:
  Matrix out, lse;
};

}  // namespace lazytrain::ops::testing
