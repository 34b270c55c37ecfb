// SCIP, loaded at run time. No headers are needed: these are the few functions of its stable C interface that are
// called.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "plan/mip/adapters.h"
#include "plan/mip/watchdog.h"

namespace lazytrain::plan {
namespace {

namespace fs = std::filesystem;

struct Scip;
struct ScipSol;
struct ScipVar;
using Retcode = int;
constexpr Retcode kOkay = 1;
constexpr double kScipInfinity = 1e20;

// The functions, with the signatures of scip.h (versions 7 to 10). SCIP_Bool is unsigned.
struct Api {
  Retcode (*create)(Scip**);
  Retcode (*free)(Scip**);
  Retcode (*include_default_plugins)(Scip*);
  Retcode (*set_real)(Scip*, const char*, double);
  Retcode (*set_int)(Scip*, const char*, int);
  Retcode (*set_bool)(Scip*, const char*, unsigned);
  Retcode (*read_prob)(Scip*, const char*, const char*);
  Retcode (*create_sol)(Scip*, ScipSol**, void*);
  Retcode (*set_sol_val)(Scip*, ScipSol*, ScipVar*, double);
  Retcode (*add_sol_free)(Scip*, ScipSol**, unsigned*);
  Retcode (*solve)(Scip*);
  Retcode (*interrupt_solve)(Scip*);
  ScipSol* (*best_sol)(Scip*);
  double (*sol_val)(Scip*, ScipSol*, ScipVar*);
  double (*dual_bound)(Scip*);
  double (*gap)(Scip*);
  ScipVar* (*find_var)(Scip*, const char*);
  int (*status)(Scip*);
  void (*quiet)(Scip*, unsigned);
};

// Never unloaded: a thread that was left behind may still be in it.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      throw UsageError("solver: SCIP cannot be loaded from {}: {}. Run scripts/setup.sh again, or take solver highs.",
                       path, dlerror());
    }
    load(api_.create, "SCIPcreate");
    load(api_.free, "SCIPfree");
    load(api_.include_default_plugins, "SCIPincludeDefaultPlugins");
    load(api_.set_real, "SCIPsetRealParam");
    load(api_.set_int, "SCIPsetIntParam");
    load(api_.set_bool, "SCIPsetBoolParam");
    load(api_.read_prob, "SCIPreadProb");
    load(api_.create_sol, "SCIPcreateSol");
    load(api_.set_sol_val, "SCIPsetSolVal");
    load(api_.add_sol_free, "SCIPaddSolFree");
    load(api_.solve, "SCIPsolve");
    load(api_.interrupt_solve, "SCIPinterruptSolve");
    load(api_.best_sol, "SCIPgetBestSol");
    load(api_.sol_val, "SCIPgetSolVal");
    load(api_.dual_bound, "SCIPgetDualbound");
    load(api_.gap, "SCIPgetGap");
    load(api_.find_var, "SCIPfindVar");
    load(api_.status, "SCIPgetStatus");
    load(api_.quiet, "SCIPsetMessagehdlrQuiet");
  }
  const Api& api() const { return api_; }

 private:
  template <typename F>
  void load(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    if (function == nullptr) {
      throw UsageError(
          "solver: the SCIP library has no function {}: it is too old. Run scripts/setup.sh again, or take "
          "solver highs.",
          name);
    }
  }
  void* handle_;
  Api api_ = {};
};

void must(Retcode code, const char* what) {
  if (code != kOkay) throw RunError("SCIP failed to {} (its code {})", what, code);
}

class Model {
 public:
  explicit Model(const Api& api) : api_(api) { must(api_.create(&scip_), "start"); }
  ~Model() { api_.free(&scip_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void read(const Mip& mip, double time_limit_s, double gap) {
    must(api_.include_default_plugins(scip_), "load its plugins");
    api_.quiet(scip_, 1);
    must(api_.set_int(scip_, "display/verblevel", 0), "set display/verblevel");
    must(api_.set_bool(scip_, "misc/catchctrlc", 0), "set misc/catchctrlc");
    must(api_.set_real(scip_, "limits/time", std::min(time_limit_s, kScipInfinity)), "set limits/time");
    must(api_.set_real(scip_, "limits/gap", gap), "set limits/gap");
    const fs::path file =
        fs::temp_directory_path() / fmt::format("lazytrain-{}-{:x}.mps", getpid(), std::hash<const void*>{}(this));
    const std::shared_ptr<void> removed(nullptr, [&](void*) {
      std::error_code ignored;
      fs::remove(file, ignored);
    });
    write_mps(mip, file);
    must(api_.read_prob(scip_, file.c_str(), "mps"), "read the program");
    for (size_t i = 0; i < mip.columns.size(); ++i) {
      variables_.push_back(api_.find_var(scip_, fmt::format("C{}", i).c_str()));
      if (variables_.back() == nullptr) throw RunError("SCIP does not know column C{}", i);
    }
  }
  void start_from(const std::vector<double>& values) {
    ScipSol* solution = nullptr;
    must(api_.create_sol(scip_, &solution, nullptr), "make a solution");
    for (size_t i = 0; i < values.size(); ++i)
      must(api_.set_sol_val(scip_, solution, variables_[i], values[i]), "set a value");
    unsigned stored = 0;
    must(api_.add_sol_free(scip_, &solution, &stored), "take a start");
  }
  void solve() { must(api_.solve(scip_), "solve"); }
  void interrupt() { api_.interrupt_solve(scip_); }
  void report(const Mip& mip, double gap, SolverTask& task) const {
    if (ScipSol* best = api_.best_sol(scip_); best != nullptr) {
      std::vector<double> values;
      for (ScipVar* variable : variables_) values.push_back(api_.sol_val(scip_, best, variable));
      task.improve(values, mip.objective(values));
      const double bound = api_.dual_bound(scip_);
      if (std::abs(bound) < kScipInfinity) task.raise_bound(bound);
      const bool reached = api_.gap(scip_) <= gap + 1e-9;
      return task.end(reached ? MipStatus::kGapReached : MipStatus::kTimeLimit, reached ? "gap reached" : "time limit");
    }
    // Without any solution a dual bound of infinity is the proof that there is none, whatever the status is called.
    const bool none = api_.dual_bound(scip_) >= kScipInfinity;
    task.end(none ? MipStatus::kInfeasible : MipStatus::kTimeLimit, fmt::format("status {}", api_.status(scip_)));
  }

 private:
  const Api& api_;
  Scip* scip_ = nullptr;
  std::vector<ScipVar*> variables_;
};

bool is_scip(const fs::path& file) {
  return file.filename().string().starts_with("libscip") && file.filename().string().find(".so") != std::string::npos;
}

// The library in a folder; of several versions the last by name.
std::string library_in(const fs::path& folder) {
  std::string found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (is_scip(it->path())) found = std::max(found, it->path().string());
  }
  return found;
}

}  // namespace

std::string scip_library() {
  if (const char* set = std::getenv("LAZYTRAIN_SCIP")) {
    std::error_code error;
    return fs::is_regular_file(set, error) ? std::string(set) : library_in(set);
  }
  for (const char* folder : {LAZYTRAIN_SCIP_FOLDER, "/usr/local/lib", "/usr/lib/x86_64-linux-gnu",
                             "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    if (const std::string found = library_in(folder); !found.empty()) return found;
  }
  return "";
}

MipResult solve_with_scip(const Mip& mip, const std::vector<double>& start, const SolveOptions& options) {
  const auto library = std::make_shared<const Library>(scip_library());
  // Shared with the thread, which may outlive this call.
  const auto owned = std::make_shared<const Mip>(mip);
  MipResult result = run_watched(
      [library, owned, start, time_limit_s = options.time_limit_s, gap = options.gap](SolverTask& task) {
        Model model(library->api());
        model.read(*owned, time_limit_s, gap);
        if (!start.empty()) model.start_from(start);
        if (task.should_stop()) return;
        model.solve();
        model.report(*owned, gap, task);
      },
      start, start.empty() ? 0 : mip.objective(start), options.time_limit_s, kGraceS, options.stop);
  result.solver = "scip";
  return result;
}

}  // namespace lazytrain::plan
