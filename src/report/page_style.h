// Looks and behaviour of the page.
#pragma once

#include <string_view>

namespace lazytrain::report {

// Kinds of slices (k-*), tiers (t-*) and states of tiles (s-*) have a colour or mark each.
inline constexpr std::string_view kPageStyle = R"css(
:root { color-scheme: light dark; --ink: #1c2128; --soft: #5c6672; --line: #d5dae1; --card: #fff; --page: #f4f6f8; --blue: #2f6fde; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #98a2b0; --line: #363d47; --card: #1d2228; --page: #14181d; --blue: #6ea2ff; } }
body { font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto; max-width: 1180px; padding: 20px; }
h1 { font-size: 20px; overflow-wrap: anywhere; } h2 { font-size: 15px; margin: 0 0 10px; } h3 { font-size: 13px; margin: 10px 0 4px; color: var(--soft); }
section, dl { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px; margin: 0 0 14px; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: 10px; }
dt { color: var(--soft); font-size: 12px; } dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.caption, .note { color: var(--soft); font-size: 12px; margin: 8px 0 0; } .note { margin: 0 0 8px; }
svg { display: block; width: 100%; background: var(--page); border-radius: 4px; }
svg.zoom { cursor: grab; touch-action: none; }
.lanes, .chart { display: grid; grid-template-columns: 96px 1fr; gap: 8px; }
.names div { height: 26px; font-size: 12px; line-height: 13px; } .names small { display: block; color: var(--soft); font-size: 10px; }
.axis { display: flex; justify-content: space-between; font-size: 11px; color: var(--soft); }
.scale { display: flex; flex-direction: column; justify-content: space-between; align-items: flex-end; height: 160px; font-size: 11px; color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; font-size: 12px; margin-bottom: 8px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 5px; vertical-align: -1px; background: #8a94a3; }
rect { fill: #8a94a3; } polyline { fill: none; stroke: var(--blue); stroke-width: 1.6; vector-effect: non-scaling-stroke; } circle { fill: var(--blue); }
.area { fill: #8a94a3; fill-opacity: .75; } .area.t-device { fill: #2f6fde; } .area.t-host { fill: #d98a1f; } .area.t-disk { fill: #8a5bd6; }
.k-forward { fill: #2f6fde; background: #2f6fde !important; } .k-backward { fill: #2a9d6a; background: #2a9d6a !important; }
.k-loss { fill: #d64545; background: #d64545 !important; } .k-recompute { fill: #e0a21b; background: #e0a21b !important; }
.k-block-recompute { fill: #d9731f; background: #d9731f !important; } .k-update { fill: #8a5bd6; background: #8a5bd6 !important; }
.k-accumulate { fill: #7c8794; background: #7c8794 !important; } .k-copy-in { fill: #1fa3b5; background: #1fa3b5 !important; }
.k-copy-out { fill: #d16ba5; background: #d16ba5 !important; } .k-fetch { fill: #7ec8e3; background: #7ec8e3 !important; }
.k-disk-read { fill: #a8c686; background: #a8c686 !important; } .k-disk-write { fill: #8d6e63; background: #8d6e63 !important; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 0 14px; }
.tiles { display: flex; flex-wrap: wrap; gap: 3px; } .tiles b { height: 30px; border-radius: 4px; background: #8a94a3; }
.tile-unit { width: 30px; } .tile-boundary { width: 9px; }
.t-device { background: #2f6fde !important; } .t-host { background: #d98a1f !important; } .t-disk { background: #8a5bd6 !important; }
.tiles .s-recomputed, .legend .s-recomputed { opacity: .3; } .tiles .s-retained, .legend .s-retained { box-shadow: inset 0 -8px 0 #2a9d6a; }
table { border-collapse: collapse; } th { text-align: left; color: var(--soft); font-size: 12px; }
td, th { padding: 3px 22px 3px 0; border-bottom: 1px solid var(--line); } .number { text-align: right; font-variant-numeric: tabular-nums; } .sum td { font-weight: 600; }
)css";

// Zoom and move of the lanes, by the view box; the labels of the time axis follow.
inline constexpr std::string_view kPageScript = R"js(
for (const svg of document.querySelectorAll('svg.zoom')) {
  const all = svg.viewBox.baseVal.width, axis = svg.parentNode.querySelector('.axis');
  const span = Number(axis.dataset.span), labels = [...axis.children];
  let x = 0, width = all, grabbed = null;
  const time = s => s < 1e-3 ? (s * 1e6).toFixed(1) + ' us' : s < 1 ? (s * 1e3).toFixed(2) + ' ms' : s.toFixed(3) + ' s';
  const show = () => {
    width = Math.min(all, Math.max(all / 1e5, width));
    x = Math.min(all - width, Math.max(0, x));
    svg.viewBox.baseVal.x = x; svg.viewBox.baseVal.width = width;
    labels.forEach((label, i) => { label.textContent = time(span * (x + width * i / (labels.length - 1)) / all); });
  };
  svg.addEventListener('wheel', event => {
    event.preventDefault();
    const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width, before = width;
    width = Math.min(all, Math.max(all / 1e5, width * Math.exp(event.deltaY / 400)));
    x += at * (before - width);
    show();
  }, { passive: false });
  svg.addEventListener('pointerdown', event => { grabbed = [event.clientX, x]; svg.setPointerCapture(event.pointerId); });
  svg.addEventListener('pointermove', event => {
    if (!grabbed) return;
    x = grabbed[1] - (event.clientX - grabbed[0]) * width / svg.getBoundingClientRect().width;
    show();
  });
  svg.addEventListener('pointerup', () => { grabbed = null; });
  svg.addEventListener('dblclick', () => { x = 0; width = all; show(); });
}
)js";

}  // namespace lazytrain::report
