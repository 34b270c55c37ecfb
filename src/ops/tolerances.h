// Accepted errors of op tests, in the measure rho = rms(x - y) / rms(y). Each constant repeats one line of the table
// of tolerances that the model specification gives; a test takes its bound from here and never widens it.
#pragma once

namespace lazytrain::ops::testing {

// "float64 formulas vs central differences (h = 1e-6): rel max <= 1e-7".
inline constexpr double kFp64Difference = 1e-7;
// "fp32 kernel vs float64 reference, one op: rho <= 1e-5".
inline constexpr double kFp32Op = 1e-5;
// The same line: "attention/scan <= 1e-4".
inline constexpr double kFp32Attention = 1e-4;
// "bf16 op vs fp32 op on the same bf16 inputs: GEMM, norm, RoPE rho <= 5e-3".
inline constexpr double kBf16Op = 5e-3;
// The same line: "attention out <= 5e-3".
inline constexpr double kBf16AttentionOut = 5e-3;
// The same line: "dq, dk, dv <= 8e-3 ... 1e-2"; the stricter end.
inline constexpr double kBf16AttentionGrad = 8e-3;
// "loss of one batch, bf16 vs fp32: abs <= 1e-2 and rel <= 0.5 %".
inline constexpr double kLossAbsolute = 1e-2;
inline constexpr double kLossRelative = 5e-3;

}  // namespace lazytrain::ops::testing
