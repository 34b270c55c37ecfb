// Trajectories of torch.optim.AdamW (tools/golden/make_numbers.py): gradients from 1e-45 to beyond fp32's squares.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "optim/adamw.h"
#include "optim/grad_norm.h"

namespace lazytrain::optim {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(LAZYTRAIN_SOURCE_DIR) / "src/optim/testdata";

class Golden {
 public:
  Golden() : bytes_(read_file(kFolder / "adamw.safetensors", 1 << 20)), info(read_json(kFolder / "adamw.json")) {
    std::memcpy(&header_bytes_, bytes_.data(), sizeof header_bytes_);
    header_ = parse_json(bytes_.substr(8, header_bytes_), "adamw.safetensors");
  }
  template <typename T>
  std::vector<T> tensor(const std::string& name) const {
    const auto offsets = header_.at(name).at("data_offsets").get<std::vector<size_t>>();
    std::vector<T> values((offsets.at(1) - offsets.at(0)) / sizeof(T));
    const std::string piece = bytes_.substr(8 + header_bytes_ + offsets.at(0), values.size() * sizeof(T));
    std::memcpy(values.data(), piece.data(), piece.size());
    return values;
  }

 private:
  std::string bytes_;
  uint64_t header_bytes_ = 0;
  Json header_;

 public:
  Json info;
};

float ulp(float x) { return std::nextafter(std::abs(x), INFINITY) - std::abs(x); }

// One parameter as torch's vectorised CPU kernels compute it: in m and v the last product and sum are fused.
struct TorchElement {
  float p, m = 0.0f, v = 0.0f;

  void update(float g, double lr, double weight_decay, size_t t) {
    const double correction1 = 1.0 - std::pow(0.9, static_cast<double>(t));
    const double correction2 = 1.0 - std::pow(0.999, static_cast<double>(t));
    p *= static_cast<float>(1.0 - lr * weight_decay);
    m = std::fma(static_cast<float>(1.0 - 0.9), g - m, m);
    v *= 0.999f;
    v = std::fma(static_cast<float>(1.0 - 0.999) * g, g, v);
    const float denominator = std::sqrt(v) / static_cast<float>(std::sqrt(correction2)) + 1e-8f;
    p += static_cast<float>(-(lr / correction1)) * m / denominator;
  }
};

// adamw_update of one parameter whose state is `from`.
TorchElement step_of_ours(const AdamWStep& step, TorchElement from, float gradient) {
  SplitMaster s = split_master(from.p);
  adamw_update(step, {&s.hi, &s.lo, &from.m, &from.v}, &gradient, 1, nullptr);
  from.p = merge_master(s);
  return from;
}

// Both results of one step from the same state. A product that torch fuses is not rounded there: half an ulp of it, and
// half an ulp for each final rounding. That reaches the weight through the update, beside the weight's own ulp.
void expect_within_an_ulp(const TorchElement& ours, const TorchElement& torch, const TorchElement& before, float g) {
  if (ours.m != torch.m) {
    const float product = 0.1f * std::abs(g - before.m);
    EXPECT_LE(std::abs(ours.m - torch.m), 0.5f * (ulp(product) + ulp(ours.m) + ulp(torch.m)));
  }
  if (ours.v != torch.v) {
    EXPECT_LE(std::abs(ours.v - torch.v), ulp(torch.v));
  }
  if (ours.p != torch.p) {
    const float update = std::abs(torch.p - before.p);
    const float of_moments = ours.m == torch.m ? 0.0f : update * std::abs(ours.m / torch.m - 1.0f);
    const float largest = std::max({std::abs(torch.p), std::abs(before.p), update});
    EXPECT_LE(std::abs(ours.p - torch.p), ulp(largest) + of_moments);
  }
}

void run_variant(const Golden& golden, const Json& variant, const std::string& tensor) {
  const std::string name = variant.at("name").get<std::string>();
  const auto gradients = golden.tensor<float>("gradient." + tensor);
  const auto path = golden.tensor<float>(name + ".param." + tensor);
  const auto m = golden.tensor<float>(name + ".exp_avg." + tensor);
  const auto v = golden.tensor<float>(name + ".exp_avg_sq." + tensor);
  const auto lrs = golden.tensor<double>("lr");
  const auto norms = golden.tensor<double>("grad_norm");
  const auto decayed = golden.info.at("decayed").get<std::vector<std::string>>();
  const bool decays = std::find(decayed.begin(), decayed.end(), tensor) != decayed.end();
  const AdamWOptions options{.weight_decay = variant.at("weight_decay").get<double>()};
  const double clip = variant.at("clip").get<double>();

  std::vector<TorchElement> torch;
  for (const float p : golden.tensor<float>("start." + tensor)) torch.push_back({p});
  for (size_t t = 1; t <= lrs.size(); ++t) {
    const AdamWStep step =
        adamw_step(options, lrs[t - 1], static_cast<int64_t>(t), clip_factor(norms[t - 1], clip), decays);
    for (size_t i = 0; i < torch.size(); ++i) {
      SCOPED_TRACE(name + " " + tensor + " step " + std::to_string(t) + " parameter " + std::to_string(i));
      const size_t at = (t - 1) * torch.size() + i;
      const float g = gradients[at] * static_cast<float>(step.gradient_scale);
      const TorchElement before = torch[i];
      torch[i].update(g, step.lr, step.weight_decay, t);
      ASSERT_EQ(torch[i].p, path[at]) << "the element above is not torch's";
      expect_within_an_ulp(step_of_ours(step, before, gradients[at]), torch[i], before, g);
    }
  }
  for (size_t i = 0; i < torch.size(); ++i) {
    ASSERT_EQ(torch[i].m, m[i]);
    ASSERT_EQ(torch[i].v, v[i]);
  }
}

// Every parameter of every step starts from torch's state, whose weights are the file's to the bit.
TEST(AdamWTorch, EachStepIsWithinAnUlp) {
  const Golden golden;
  for (const Json& variant : golden.info.at("variants")) {
    for (const Json& tensor : golden.info.at("tensors")) run_variant(golden, variant, tensor.get<std::string>());
  }
}

TEST(AdamWTorch, NormIsTorchsInDouble) {
  const Golden golden;
  const auto norms = golden.tensor<double>("grad_norm");
  for (size_t t = 0; t < norms.size(); ++t) {
    GradientSum sum;
    for (const Json& tensor : golden.info.at("tensors")) {
      const auto gradients = golden.tensor<float>("gradient." + tensor.get<std::string>());
      const size_t n = gradients.size() / norms.size();
      sum += sum_of_squares(gradients.data() + t * n, static_cast<int64_t>(n), nullptr);
    }
    EXPECT_TRUE(sum.finite);
    EXPECT_NEAR(sum.norm() / norms[t], 1.0, 1e-14) << "step " << t;
  }
}

}  // namespace
}  // namespace lazytrain::optim
