// Trajectories of torch.optim.AdamW (tools/golden/make_numbers.py): gradients from 1e-45 to beyond fp32's squares.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
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

  void update(float g, double lr, double weight_decay, int64_t t, double beta2 = 0.999, double eps = 1e-8) {
    const double correction1 = 1.0 - std::pow(0.9, static_cast<double>(t));
    const double correction2 = 1.0 - std::pow(beta2, static_cast<double>(t));
    p *= static_cast<float>(1.0 - lr * weight_decay);
    m = std::fma(static_cast<float>(1.0 - 0.9), g - m, m);
    v *= static_cast<float>(beta2);
    v = std::fma(static_cast<float>(1.0 - beta2) * g, g, v);
    const float denominator = std::sqrt(v) / static_cast<float>(std::sqrt(correction2)) + static_cast<float>(eps);
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

// The arithmetic of adamw.h on a plain fp32 weight.
TorchElement plain_step(const AdamWStep& step, TorchElement from, float g) {
  from.p *= static_cast<float>(1.0 - step.lr * step.weight_decay);
  from.m = from.m + static_cast<float>(1.0 - step.beta1) * (g - from.m);
  from.v = from.v * static_cast<float>(step.beta2) + static_cast<float>(1.0 - step.beta2) * g * g;
  const float denominator =
      std::sqrt(from.v) / static_cast<float>(std::sqrt(step.bias_correction2)) + static_cast<float>(step.eps);
  from.p += static_cast<float>(-(step.lr / step.bias_correction1)) * from.m / denominator;
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
      torch[i].update(g, step.lr, step.weight_decay, static_cast<int64_t>(t));
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

// As gradient_bits in tools/golden/make_adamw_settings.py, which says what they are.
float adversarial_gradient(uint32_t i, uint32_t step) {
  uint32_t x = i * 0x9e3779b1u + step * 0x85ebca6bu;
  x = (x ^ (x >> 15)) * 0x2c1b3c6du;
  x = (x ^ (x >> 12)) * 0x297a2d39u;
  x ^= x >> 15;
  const uint32_t mantissa = x & 0x7fffffu, sign = ((x >> 23) & 1u) << 31, spread = x >> 24;
  struct Range {
    uint32_t low, span;
  };
  constexpr std::array<Range, 8> kRanges = {
      {{27, 200}, {0, 0}, {77, 100}, {0, 0}, {27, 34}, {188, 3}, {110, 14}, {160, 1}}};
  const uint32_t kind = i % 8;
  if (kind == 1) return std::bit_cast<float>((step % 2) << 31 | 117u << 23 | 0x123456u);
  if (kind == 3) return std::bit_cast<float>(spread < 64 ? 0u : sign | mantissa);
  if (kind == 7 && spread != 0) return std::bit_cast<float>(sign);
  return std::bit_cast<float>(sign | (kRanges[kind].low + spread * kRanges[kind].span / 256) << 23 | mantissa);
}

std::vector<uint32_t> bits_of(const std::vector<TorchElement>& torch, float TorchElement::*member) {
  std::vector<uint32_t> bits;
  for (const TorchElement& element : torch) bits.push_back(std::bit_cast<uint32_t>(element.*member));
  return bits;
}

// A thousand steps under one setting. Beside each step from torch's state, a run of our own goes on by itself on split
// weights and, with the arithmetic of adamw.h, on plain fp32 ones: the same bits.
void run_setting(const Json& setting, uint32_t size, uint32_t steps, const std::vector<uint32_t>& shown) {
  const AdamWOptions options{.beta2 = setting.at("beta2").get<double>(),
                             .eps = setting.at("eps").get<double>(),
                             .weight_decay = setting.at("weight_decay").get<double>()};
  std::vector<TorchElement> torch;
  for (uint32_t i = 0; i < size; ++i) torch.push_back({(static_cast<float>(i) - 16.0f) / 64.0f});
  std::vector<TorchElement> ours = torch;
  size_t next_shown = 0;
  for (uint32_t t = 1; t <= steps; ++t) {
    const int64_t update = t + (t >= 2 ? setting.at("updates_before").get<int64_t>() : 0);
    const AdamWStep step = adamw_step(options, setting.at("lr").get<double>(), update, 1.0, true);
    for (uint32_t i = 0; i < size; ++i) {
      SCOPED_TRACE("step " + std::to_string(t) + " parameter " + std::to_string(i));
      const float g = adversarial_gradient(i, t);
      const TorchElement before = torch[i];
      torch[i].update(g, step.lr, step.weight_decay, update, options.beta2, options.eps);
      expect_within_an_ulp(step_of_ours(step, before, g), torch[i], before, g);
      const TorchElement split = step_of_ours(step, ours[i], g);
      ours[i] = plain_step(step, ours[i], g);
      ASSERT_EQ(std::bit_cast<uint32_t>(split.p), std::bit_cast<uint32_t>(ours[i].p));
    }
    if (next_shown < shown.size() && shown[next_shown] == t) {
      ASSERT_EQ(bits_of(torch, &TorchElement::p), setting.at("param").at(next_shown).get<std::vector<uint32_t>>())
          << "step " << t << ": the element above is not torch's";
      ++next_shown;
    }
  }
  EXPECT_EQ(next_shown, shown.size());
  EXPECT_EQ(bits_of(torch, &TorchElement::m), setting.at("exp_avg").get<std::vector<uint32_t>>());
  EXPECT_EQ(bits_of(torch, &TorchElement::v), setting.at("exp_avg_sq").get<std::vector<uint32_t>>());
}

TEST(AdamWTorch, AThousandAdversarialStepsUnderSettingsThatPeopleUse) {
  const Json golden = read_json(kFolder / "adamw_settings.json");
  const auto shown = golden.at("shown").get<std::vector<uint32_t>>();
  ASSERT_FALSE(golden.at("settings").empty());
  for (const Json& setting : golden.at("settings")) {
    SCOPED_TRACE(setting.at("beta2").dump() + " " + setting.at("eps").dump());
    run_setting(setting, golden.at("size").get<uint32_t>(), golden.at("steps").get<uint32_t>(), shown);
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
