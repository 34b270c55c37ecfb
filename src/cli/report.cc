// lazytrain report: one HTML page of a run or a plan.
#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/planned.h"
#include "plan/trace.h"
#include "report/html.h"
#include "report/run_data.h"

namespace lazytrain::cli {
namespace {

namespace fs = std::filesystem;

struct ReportArgs {
  std::string source;
  std::string out;
  std::string model;
  bool json = false;
};

int report_command(const ReportArgs& args) {
  const fs::path source = args.source;
  const bool run = fs::is_directory(source);
  if (!run && !fs::is_regular_file(source)) throw UsageError("{}: neither a run folder nor a plan", args.source);
  const fs::path plan_file = run ? source / "plan.json" : source;
  if (!fs::exists(plan_file)) throw UsageError("{}: no plan.json in it: is it the `output` of a run?", args.source);
  const LoadedPlan loaded = load_plan(plan_file, args.model, "");
  const Planned& planned = loaded.planned;
  report::PageData page = report::page_of_plan(planned.program, loaded.graph, planned.timeline, loaded.machine);
  if (run) report::add_run(source, page);
  const fs::path out = !args.out.empty() ? fs::path(args.out)
                       : run             ? source / "report.html"
                                         : fs::path(source).replace_extension(".html");
  write_file(out, report::render_html(page));
  print(args.json, {{"file", out.string()}}, out.string());
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<ReportArgs>();
  CLI::App* command =
      add_command(app, chosen, "report", "Write one HTML page of a run or a plan", args, report_command);
  command->add_option("source", args->source, "Run folder, or plan.json")->required()->type_name("RUN_OR_PLAN");
  command->add_option("-o,--out", args->out, "The page; report.html in the run, or beside the plan, without it");
  command->add_option("--model", args->model, "Model folder or config.json, where the plan does not hold it");
  command->add_flag("--json", args->json, "Print {file}");
}

}  // namespace lazytrain::cli
