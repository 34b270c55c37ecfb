#include "report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/units.h"
#include "report/page_style.h"

namespace lazytrain::report {
namespace {

constexpr double kWidth = 1000;  // of a drawing, in its own units
constexpr double kLaneHeight = 26;
constexpr double kChartHeight = 160;
constexpr size_t kMaxPoints = 1500;  // of a curve; longer ones show means
constexpr double kVisible = 0.4;     // narrower slices are drawn together with their neighbours

// Length of a well-formed UTF-8 character at the start of `text`, 0 when there is none.
size_t character_length(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  if ((lead == 0xe0 && at(1) < 0xa0) || (lead == 0xed && at(1) > 0x9f)) return 0;  // too long a form, surrogates
  if ((lead == 0xf0 && at(1) < 0x90) || (lead == 0xf4 && at(1) > 0x8f)) return 0;
  return length;
}

std::string panel(std::string_view heading, std::string_view body, std::string_view caption = "") {
  return fmt::format("<section><h2>{}</h2>{}{}</section>\n", escape_html(heading), body,
                     caption.empty() ? "" : fmt::format("<p class=\"caption\">{}</p>", escape_html(caption)));
}

std::string header(const PageData& page) {
  std::string html = fmt::format("<h1>{}</h1>\n", escape_html(page.title));
  for (const std::string& note : page.notes) html += fmt::format("<p class=\"note\">{}</p>\n", escape_html(note));
  html += "<dl>";
  for (const auto& [name, value] : page.facts) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escape_html(name), escape_html(value));
  }
  return html + "</dl>\n";
}

// A class name made of letters, digits and dashes alone.
std::string css_class(std::string_view prefix, std::string_view word) {
  std::string name(prefix);
  for (const char c : word) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  return name;
}

// Neighbours too narrow to be seen become one slice.
std::vector<Slice> drawable(const std::vector<Slice>& slices, double step_s) {
  std::map<std::string, std::vector<Slice>> lanes;
  for (const Slice& slice : slices) lanes[slice.lane].push_back(slice);
  const double narrow_s = kVisible * step_s / kWidth;
  std::vector<Slice> drawn;
  for (auto& [lane, list] : lanes) {
    std::sort(list.begin(), list.end(), [](const Slice& a, const Slice& b) { return a.start_s < b.start_s; });
    int merged = 1;
    const size_t first = drawn.size();
    for (const Slice& slice : list) {
      const bool joins = drawn.size() > first && drawn.back().kind == slice.kind &&
                         slice.end_s - slice.start_s < narrow_s && slice.start_s - drawn.back().end_s < narrow_s &&
                         drawn.back().end_s - drawn.back().start_s < 4 * narrow_s;
      if (!joins) {
        drawn.push_back(slice);
        merged = 1;
        continue;
      }
      drawn.back().end_s = std::max(drawn.back().end_s, slice.end_s);
      drawn.back().name = fmt::format("{} x {}", ++merged, slice.kind);
    }
  }
  return drawn;
}

std::string time_axis(double step_s) {
  std::string html = fmt::format("<div class=\"axis\" data-span=\"{:.9g}\">", step_s);
  for (int i = 0; i <= 4; ++i) html += fmt::format("<span>{}</span>", escape_html(format_seconds(step_s * i / 4)));
  return html + "</div>";
}

std::string lanes(const PageData& page) {
  if (page.slices.empty() || page.step_s <= 0) return "";
  const std::vector<Slice> slices = drawable(page.slices, page.step_s);
  std::vector<std::string> names;
  std::map<std::string, double> busy;
  std::set<std::string> kinds;
  for (const Slice& slice : page.slices) {
    if (std::find(names.begin(), names.end(), slice.lane) == names.end()) names.push_back(slice.lane);
    busy[slice.lane] += slice.end_s - slice.start_s;
    kinds.insert(slice.kind);
  }
  std::sort(names.begin(), names.end());
  std::string labels, bars;
  for (const std::string& name : names) {
    labels +=
        fmt::format("<div>{}<small>{:.0f}% busy</small></div>", escape_html(name), 100 * busy[name] / page.step_s);
  }
  for (const Slice& slice : slices) {
    const auto row = static_cast<double>(std::find(names.begin(), names.end(), slice.lane) - names.begin());
    const double x = kWidth * slice.start_s / page.step_s;
    const double width = std::max(0.05, kWidth * (slice.end_s - slice.start_s) / page.step_s);
    bars += fmt::format(
        "<rect class=\"{}\" x=\"{:.3f}\" y=\"{:.0f}\" width=\"{:.3f}\" height=\"{:.0f}\"><title>{} ({}, at "
        "{})</title></rect>\n",
        css_class("k-", slice.kind), x, row * kLaneHeight + 2, width, kLaneHeight - 4, escape_html(slice.name),
        escape_html(format_seconds(slice.end_s - slice.start_s)), escape_html(format_seconds(slice.start_s)));
  }
  std::string legend;
  for (const std::string& kind : kinds) {
    legend += fmt::format("<span><i class=\"{}\"></i>{}</span>", css_class("k-", kind), escape_html(kind));
  }
  const double height = kLaneHeight * static_cast<double>(names.size());
  const std::string body = fmt::format(
      "<div class=\"legend\">{}</div><div class=\"lanes\"><div class=\"names\">{}</div><div><svg class=\"zoom\" "
      "viewBox=\"0 0 {:.0f} {:.0f}\" "
      "height=\"{:.0f}\" preserveAspectRatio=\"none\">{}</svg>{}</div></div>",
      legend, labels, kWidth, height, height, bars, time_axis(page.step_s));
  return panel("Lanes: " + page.timeline_title, body,
               "Wheel: zoom; drag: move; double click: all. A bar tells what it is.");
}

// At most kMaxPoints, each the mean of its neighbours.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points) {
  if (points.size() <= kMaxPoints) return points;
  std::vector<std::pair<double, double>> few;
  for (size_t part = 0; part < kMaxPoints; ++part) {
    const size_t begin = points.size() * part / kMaxPoints, end = points.size() * (part + 1) / kMaxPoints;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += points[i].second;
    few.emplace_back(points[end - 1].first, sum / static_cast<double>(end - begin));
  }
  return few;
}

struct Extent {
  double x_min = 0, x_max = 1, y_min = 0, y_max = 1;
  double x(double v) const { return kWidth * (v - x_min) / (x_max - x_min); }
  double y(double v) const { return kChartHeight - 6 - (kChartHeight - 12) * (v - y_min) / (y_max - y_min); }
};

std::string svg_chart(std::string_view paths) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" height=\"{:.0f}\" preserveAspectRatio=\"none\">{}</svg>",
                     kWidth, kChartHeight, kChartHeight, paths);
}

std::string with_scale(std::string_view top, std::string_view bottom, std::string_view chart, std::string_view axis) {
  return fmt::format(
      "<div class=\"chart\"><div class=\"scale\"><span>{}</span><span>{}</span></div><div>{}{}</div></div>",
      escape_html(top), escape_html(bottom), chart, axis);
}

std::string memory(const PageData& page) {
  if (page.memory.empty() || page.step_s <= 0) return "";
  std::string body;
  for (const Curve& curve : page.memory) {
    Extent extent{0, page.step_s, 0, 1};
    for (const auto& [time, bytes] : curve.points) extent.y_max = std::max(extent.y_max, bytes);
    std::string path = fmt::format("M0 {:.2f}", kChartHeight - 6);
    for (const auto& [time, bytes] : curve.points) {
      path += fmt::format("H{:.3f}V{:.2f}", extent.x(std::min(time, page.step_s)), extent.y(bytes));
    }
    path += fmt::format("H{:.0f}V{:.2f}Z", kWidth, kChartHeight - 6);
    const std::string chart =
        svg_chart(fmt::format("<path class=\"{}\" d=\"{}\"/>", css_class("area t-", curve.name), path));
    body += fmt::format("<h3>{}</h3>", escape_html(curve.name)) +
            with_scale(format_bytes(static_cast<int64_t>(extent.y_max)), "0", chart, time_axis(page.step_s));
  }
  return panel("Memory over time: " + page.timeline_title, body);
}

std::string placement(const PageData& page) {
  if (page.tiles.empty()) return "";
  std::string tiles;
  std::set<std::string> tiers;
  for (const Tile& tile : page.tiles) {
    tiers.insert(tile.tier);
    tiles += fmt::format("<b class=\"{} {} {}\" title=\"{}: {}, on {}. {}\"></b>", css_class("tile-", tile.kind),
                         css_class("t-", tile.tier), css_class("s-", tile.state), escape_html(tile.label),
                         escape_html(tile.state), escape_html(tile.tier), escape_html(tile.detail));
  }
  std::string legend;
  for (const std::string& tier : tiers) {
    legend += fmt::format("<span><i class=\"{}\"></i>{}</span>", css_class("t-", tier), escape_html(tier));
  }
  legend +=
      "<span><i class=\"s-retained mark\"></i>retained set kept</span><span><i class=\"s-recomputed "
      "mark\"></i>recomputed</span>";
  return panel(
      "Placement", fmt::format("<div class=\"legend\">{}</div><div class=\"tiles\">{}</div>", legend, tiles),
      "From the embedding to the head: wide tiles are units (colour: where their weights live), narrow ones the "
      "boundaries between them. Hover for the retained set.");
}

std::string memory_table(const PageData& page) {
  if (page.table.empty()) return "";
  std::string rows;
  std::map<std::string, int64_t> sums;
  for (const MemoryLine& line : page.table) {
    sums[line.tier] += line.bytes;
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td></tr>", escape_html(line.tier),
                        escape_html(line.purpose), escape_html(format_bytes(line.bytes)));
  }
  for (const auto& [tier, bytes] : sums) {
    rows += fmt::format("<tr class=\"sum\"><td>{}</td><td>all</td><td class=\"number\">{}</td></tr>", escape_html(tier),
                        escape_html(format_bytes(bytes)));
  }
  return panel("Memory by purpose", "<table><tr><th>tier</th><th>purpose</th><th>bytes</th></tr>" + rows + "</table>",
               "State counts in full, the rest as it is alive at the peak of the device.");
}

std::string training(const PageData& page) {
  std::string html;
  for (const Curve& curve : page.training) {
    std::vector<std::pair<double, double>> points = curve.points;
    std::erase_if(points, [](const auto& p) { return !std::isfinite(p.first) || !std::isfinite(p.second); });
    if (points.empty()) continue;
    points = thinned(points);
    Extent extent{points.front().first, points.back().first, points.front().second, points.front().second};
    for (const auto& [step, value] : points) {
      extent.y_min = std::min(extent.y_min, value);
      extent.y_max = std::max(extent.y_max, value);
    }
    const std::string top = fmt::format("{:.4g}", extent.y_max), bottom = fmt::format("{:.4g}", extent.y_min);
    if (extent.x_max <= extent.x_min) extent.x_max = extent.x_min + 1;
    if (extent.y_max <= extent.y_min) extent.y_max = extent.y_min + 1;
    std::string line;
    for (const auto& [step, value] : points) line += fmt::format("{:.2f},{:.2f} ", extent.x(step), extent.y(value));
    std::string marks;
    if (points.size() < 60) {
      for (const auto& [step, value] : points) {
        marks +=
            fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"2.5\"><title>step {:.0f}: {:.6g}</title></circle>",
                        extent.x(step), extent.y(value), step, value);
      }
    }
    const std::string axis = fmt::format("<div class=\"axis\"><span>step {:.0f}</span><span>step {:.0f}</span></div>",
                                         extent.x_min, curve.points.back().first);
    html += panel(curve.name,
                  with_scale(top, bottom, svg_chart(fmt::format("<polyline points=\"{}\"/>{}", line, marks)), axis));
  }
  return html.empty() ? "" : "<div class=\"pair\">" + html + "</div>\n";
}

}  // namespace

std::string escape_html(std::string_view text) {
  static constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  std::string out;
  while (!text.empty()) {
    const size_t length = character_length(text);
    const char c = text.front();
    if (length == 0 || c == '\x7f' || (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')) {
      out += kReplacement;
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return out;
}

std::string render_html(const PageData& page) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src "
      "'unsafe-inline'\">\n<title>{}</title>\n<style>{}</style></head>\n<body>\n{}{}{}{}{}{}<script>{}</script></"
      "body></html>\n",
      escape_html(page.title), kPageStyle, header(page), training(page), lanes(page), memory(page), placement(page),
      memory_table(page), kPageScript);
}

}  // namespace lazytrain::report
