#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "graph/testing.h"
#include "plan/heuristics.h"
#include "plan/trace.h"
#include "report/html.h"
#include "report/run_data.h"

namespace lazytrain::report {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    machine.name = "toy";
    machine.gemm_flops = 1e9;
    machine.memory_bandwidth = 1e8;
    machine.host_bandwidth = 5e7;
    timeline = plan::simulate(program, plan::CostTable(graph, program, machine));
    fs::create_directories(folder);
  }
  ~ReportTest() override { fs::remove_all(folder); }
  PageData page() const { return page_of_plan(program, graph, timeline, machine); }
  void write(const std::string& name, std::string_view text) const { std::ofstream(folder / name) << text; }

  graph::Graph graph = graph::testing::toy_graph(3, true);
  plan::Program program = plan::compile(graph, plan::resident(graph, {4, 2, 16}), {});
  plan::Timeline timeline;
  hw::Profile machine;
  fs::path folder = fs::temp_directory_path() / fmt::format("lazytrain_report_{}", ::getpid());
};

TEST(EscapeHtml, NothingOfATextIsMarkup) {
  EXPECT_EQ(escape_html("<script>\"a\" & 'b'</script>"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;");
  EXPECT_EQ(escape_html("über 模型 🙂\n"), "über 模型 🙂\n");
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(escape_html(std::string("a\0b\x1b", 4)), "a" + bad + "b" + bad);
  EXPECT_EQ(escape_html("\xc3"), bad);                                // cut
  EXPECT_EQ(escape_html("\xc0\xbc"), bad + bad);                      // a long form of '<'
  EXPECT_EQ(escape_html("\xed\xa0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(escape_html("\xf4\x90\x80\x80"), bad + bad + bad + bad);  // behind the last code point
}

TEST_F(ReportTest, APageOfAPlanStandsAlone) {
  const std::string html = render_html(page());
  EXPECT_THAT(html, AllOf(HasSubstr("Lanes: predicted step"), HasSubstr("Memory over time"), HasSubstr("Placement"),
                          HasSubstr("Memory by purpose"), HasSubstr("optimizer state")));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("http:")), Not(HasSubstr("https:")), Not(HasSubstr("src=")),
                          Not(HasSubstr("@import")), Not(HasSubstr("url("))));
  EXPECT_EQ(count(html, "class=\"tile-unit"), graph.units.size());
  EXPECT_EQ(count(html, "class=\"tile-boundary"), graph.units.size() - 1);
  EXPECT_EQ(count(html, "s-retained\""), 3u) << "three layers keep a set";
  EXPECT_EQ(count(html, "<svg"), count(html, "</svg>"));
}

TEST_F(ReportTest, HostileNamesAreShownNotRun) {
  const std::string evil = "\"><script>alert(1)</script>";
  PageData data = page();
  data.title = data.timeline_title = evil;
  data.facts = {{evil, evil}};
  data.notes = {evil};
  for (Slice& slice : data.slices) slice.lane = slice.name = slice.kind = evil;
  for (Tile& tile : data.tiles) tile.label = tile.kind = tile.state = tile.tier = tile.detail = evil;
  for (Curve& curve : data.memory) curve.name = evil;
  data.table = {{evil, evil, 1}};
  data.training = {{evil, {{1, 2}, {2, 3}}}};
  const std::string html = render_html(data);
  EXPECT_EQ(count(html, "<script>"), 1u);  // ours
  EXPECT_THAT(html, Not(HasSubstr("\"><script>alert")));
}

TEST_F(ReportTest, ARunShowsWhatWasMeasured) {
  plan::Timeline measured = timeline;
  for (plan::Span& span : measured.spans) {
    span.start_s *= 3;
    span.end_s *= 3;
  }
  measured.step_s *= 3;
  plan::write_trace(program, graph, measured, folder / "trace.json");
  write("metrics.jsonl",
        "{\"step\":1,\"loss\":5.5,\"grad_norm\":1.5,\"lr\":0}\n{\"step\":2,\"loss\":4.25,\"grad_norm\":1,\"lr\":0.1,"
        "\"eval_loss\":4.5}\n{\"step\":3,\"lo");
  PageData data = page();
  const PageData predicted = data;
  add_run(folder, data);
  EXPECT_NEAR(data.step_s, 3 * timeline.step_s, 1e-9);
  ASSERT_EQ(data.slices.size(), predicted.slices.size());
  EXPECT_EQ(data.slices.front().lane, predicted.slices.front().lane);
  EXPECT_EQ(data.slices.back().name, predicted.slices.back().name);
  ASSERT_EQ(data.memory.size(), predicted.memory.size());
  ASSERT_EQ(data.training.size(), 4u);  // loss, eval_loss, grad_norm, lr; the line that a kill cut short is left out
  EXPECT_EQ(data.training[0].points, (std::vector<std::pair<double, double>>{{1, 5.5}, {2, 4.25}}));
  EXPECT_EQ(data.training[1].points, (std::vector<std::pair<double, double>>{{2, 4.5}}));
  EXPECT_THAT(render_html(data), AllOf(HasSubstr("last step, measured"), HasSubstr("4.2500")));
}

TEST_F(ReportTest, AnUnfinishedRunSaysWhatIsMissing) {
  PageData data = page();
  add_run(folder, data);
  EXPECT_EQ(data.timeline_title, "predicted step");
  EXPECT_THAT(render_html(data), AllOf(HasSubstr("no trace.json"), HasSubstr("no metrics.jsonl")));
}

TEST_F(ReportTest, BrokenFilesAreNamed) {
  const auto refusal = [&] {
    PageData data = page();
    try {
      add_run(folder, data);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  write("trace.json", "{\"traceEvents\": 3}");
  EXPECT_THAT(refusal(), HasSubstr("trace.json"));
  write("trace.json", "{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"a\"}]}");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("trace.json"), HasSubstr("ts")));
  fs::remove(folder / "trace.json");
  write("metrics.jsonl", "{\"step\": 1}\n{\"step\": \"two\"}\n");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("metrics.jsonl"), HasSubstr("line 2"), HasSubstr("step")));
}

}  // namespace
}  // namespace lazytrain::report
