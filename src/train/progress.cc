#include "train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/units.h"
#include "train/wording.h"

namespace lazytrain::train {

Progress::Progress(int64_t first_step, int64_t total_steps, int64_t every, double gemm_flops)
    : total_(total_steps),
      every_(every),
      gemm_flops_(gemm_flops),
      terminal_(::isatty(STDERR_FILENO) == 1),
      last_shown_(first_step) {}

Progress::~Progress() { pause(); }

void Progress::pause() {
  if (open_) say("\n");
  open_ = false;
}

void Progress::step(const StepMetrics& m) {
  mean_step_s_ = mean_step_s_ == 0 ? m.step_s : 0.9 * mean_step_s_ + 0.1 * m.step_s;
  const bool due = m.step == total_ || m.step - last_shown_ >= every_;
  if (terminal_) {
    say("\r\033[K{}", line(m));
    open_ = true;
    if (due && m.eval_loss) pause();
  } else if (due) {
    say("{}\n", line(m));
  }
  if (due) last_shown_ = m.step;
}

std::string Progress::line(const StepMetrics& m) const {
  const double mfu = gemm_flops_ > 0 && m.step_s > 0 ? m.flops / m.step_s / gemm_flops_ : 0;
  const double exposed = m.step_s > 0 ? m.exposed_s / m.step_s : 0;
  std::string text =
      fmt::format("step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tok/s  MFU {:.0f}%  exposed {:.1f}%  mem {}",
                  m.step, total_, m.loss, m.grad_norm, m.lr, m.tok_per_s, 100 * mfu, 100 * exposed,
                  format_bytes(m.peak_device_bytes + m.peak_host_bytes));
  if (m.peak_disk_bytes > 0) text += fmt::format(" + {} disk", format_bytes(m.peak_disk_bytes));
  if (m.eval_loss) text += fmt::format("  eval {:.4f}", *m.eval_loss);
  if (m.skipped) text += "  SKIPPED (gradient not finite)";
  if (m.step == total_) return text;
  return text + fmt::format("  ETA {}", format_seconds(mean_step_s_ * static_cast<double>(total_ - m.step)));
}

}  // namespace lazytrain::train
