// What NiceGUI's plotly component imports: the cartesian bundle instead of the whole one. Texts that have no room
// at a plot's width are left out after each draw, because the server does not know the width.
import { toRaw } from "vue";
import "./vendor/plotly-cartesian-3.7.0.min.js";

export const Plotly = window.Plotly;

const TITLES_AND_KEYS =
  '[class*="title"], .legendtext, .shape-label text, .infolayer [class*="cbtitle"] text';
const TICKS = '[class*="tick"] text';
const IN_TRACES = ".bartext, .textpoint text, .heatmap-label text";

// The corners of a drawn text in pixels of the page, turned as the text is.
function corners(text) {
  const box = text.getBBox();
  if (!box.width || !box.height) return null;
  const place = text.getScreenCTM();
  return [[0, 0], [1, 0], [1, 1], [0, 1]].map(([across, down]) => {
    // A line of text is not as high as its box.
    const x = box.x + across * box.width, y = box.y + 1 + down * (box.height - 2);
    return [place.a * x + place.c * y + place.e, place.b * x + place.d * y + place.f];
  });
}

function overlap(one, other) {
  for (const shape of [one, other]) {
    for (const [first, second] of [[0, 1], [1, 2]]) {
      const normal = [shape[second][1] - shape[first][1], shape[first][0] - shape[second][0]];
      const [ends, others] = [one, other].map((each) => {
        const along = each.map(([x, y]) => x * normal[0] + y * normal[1]);
        return [Math.min(...along), Math.max(...along)];
      });
      if (ends[1] <= others[0] || others[1] <= ends[0]) return false;
    }
  }
  return true;
}

// How far an annotation is cut at an edge of the plot, which it is moved by; its corners are then there.
function movedInside(found, frame) {
  const spans = [0, 1].map((axis) => found.map((corner) => corner[axis]));
  const [right, down] = spans.map((along, axis) => {
    const [low, high] = axis ? [frame.top, frame.bottom] : [frame.left, frame.right];
    const before = low - Math.min(...along), beyond = Math.max(...along) - high;
    return before > 0 ? before + 1 : beyond > 0 ? -beyond - 1 : 0;
  });
  const translate = right || down ? `${right}px ${down}px` : "";
  return { translate, found: found.map(([x, y]) => [x + right, y + down]) };
}

const ROOM = 12;

// The corners with room on both sides: without it, two annotations on one line read as one.
function withRoom(found) {
  const [across, down] = [0, 1].map((axis) => found[1][axis] - found[0][axis]);
  const part = ROOM / Math.hypot(across, down);
  return found.map(([x, y], corner) => {
    const side = corner === 0 || corner === 3 ? -part : part;
    return [x + side * across, y + side * down];
  });
}

function annotationsOf(plot) {
  const named = plot._fullLayout.annotations ?? [];
  const found = [...plot.querySelectorAll(".annotation")].map((element) => {
    const index = Number(element.dataset.index);
    const order = named[index]?.name === "note" ? -1 : index;
    const isWithin = named[index]?.name === "within";
    const text = element.querySelector("text"), moved = element.querySelector(".annotation-text-g");
    return { element, order, isWithin, text, moved };
  });
  return found.filter(({ text }) => text?.textContent).sort((one, other) => one.order - other.order);
}

// Titles, keys and thresholds stay; then marked ticks, other ticks, pinned notes, annotations in their order, and texts of
// traces, while there is room. What is left out is in the hover text. Everything is measured before anything is changed,
// because the browser lays out the plot again to measure after a change.
function leaveOutWhatCollides(plot) {
  const frame = plot.querySelector(".main-svg")?.getBoundingClientRect();
  if (!frame?.width) return;
  const annotations = annotationsOf(plot);
  for (const { moved } of annotations) moved.style.translate = "";
  const measured = (texts) => [...texts].map((element) => ({ element, found: corners(element) }));
  const taken = measured(plot.querySelectorAll(TITLES_AND_KEYS)).filter(({ found }) => found);
  const isPlain = (text) => !/[▶✕]/.test(text.textContent);
  const ticks = [...plot.querySelectorAll(TICKS)].sort((one, other) => isPlain(one) - isPlain(other));
  const placed = [
    ...measured(ticks),
    ...annotations.map((each) => {
      const found = corners(each.text);
      const moved = found && movedInside(found, frame);
      return found ? { ...each, ...moved, roomy: withRoom(moved.found) } : { ...each, found };
    }),
    ...measured(plot.querySelectorAll(IN_TRACES)),
  ];
  for (const { moved, translate } of placed) if (translate) moved.style.translate = translate;
  const axis = plot._fullLayout.xaxis;
  const unit = axis ? Math.abs(axis.l2p(1) - axis.l2p(0)) : Infinity;
  for (const each of placed) keepOrHide(each, taken, unit);
}

// An annotation named "within" stays if it is no wider than one unit of the axis: a stage, of which it speaks.
function keepOrHide({ element, found, roomy, isWithin }, taken, unit) {
  const isTooWide = found && isWithin && found[1][0] - found[0][0] > unit;
  const collides = isTooWide || found && taken.some((other) => overlap(roomy && other.roomy ? roomy : found, other.found));
  element.style.visibility = collides ? "hidden" : "";
  if (found && !collides) taken.push({ found, roomy });
}

// Plotly takes an array for changed, and calculates and draws the whole plot anew, unless it is the same object.
// So the parts of a figure that are equal to those shown are kept.
function keepEqual(value, shown) {
  if (typeof value !== "object" || typeof shown !== "object" || !value || !shown) return value;
  const names = Object.keys(value);
  let isEqual = Array.isArray(value) === Array.isArray(shown) && names.length === Object.keys(shown).length;
  for (const name of names) {
    value[name] = keepEqual(value[name], shown[name]);
    isEqual &&= value[name] === shown[name];
  }
  return isEqual ? shown : value;
}

// Vue observes each part of what it hands over, which makes reading it slow; Plotly gets the objects themselves.
const react = Plotly.react;
Plotly.react = (plot, figure, config) => {
  const { data, layout } = toRaw(figure);
  return react(plot, keepEqual(data, plot.data), keepEqual(layout, plot.layout), config);
};

const newPlot = Plotly.newPlot;
Plotly.newPlot = (plot, ...settings) => {
  const drawn = newPlot(plot, ...settings.map(toRaw));
  const tidy = () => leaveOutWhatCollides(plot);
  plot.on("plotly_afterplot", tidy);
  plot.on("plotly_relayout", tidy);
  linkHovers(plot);
  return drawn.then((element) => (tidy(), element));
};

// After a change of width, Plotly leaves the legend where the rows of the width before put it, on the bars.
const resize = Plotly.Plots.resize;
Plotly.Plots.resize = async (plot) => {
  const before = plot._fullLayout?.width;
  await resize(plot);
  if (plot._fullLayout?.showlegend && plot._fullLayout.width !== before) await Plotly.redraw(plot);
};

// --- hover links: a rank or step under the pointer is marked in every plot on the page, and a rank in the headline
const RANK = /^(?:<b>)?rank (\d+)\b/;

function rankUnder(plot, point) {
  if (plot.layout.meta?.lanes && typeof point.customdata === "number") return point.customdata;
  const words = [point.y, point.hovertext, point.data?.hovertext?.[point.pointNumber]];
  const found = words.map((text) => typeof text === "string" && text.match(RANK)).find(Boolean);
  return found ? Number(found[1]) : null;
}

function rowsOf(plot, rank) {
  const rows = [];
  for (const trace of plot.data) {
    if (plot.layout.meta?.lanes && Array.isArray(trace.customdata))
      trace.customdata.forEach((each, place) => each === rank && rows.push(trace.y[place]));
    else if (trace.type === "heatmap" && Array.isArray(trace.y))
      rows.push(...trace.y.filter((name) => typeof name === "string" && Number(name.match(RANK)?.[1]) === rank));
  }
  return [...new Set(rows)];
}

// A band along an axis over the values given, each as wide as one unit.
function mark(plot, letter, values) {
  const axis = plot._fullLayout?.[`${letter}axis`];
  const other = plot._fullLayout?.[letter === "x" ? "yaxis" : "xaxis"];
  const places = axis ? values.map((value) => axis.d2p(value)).filter(Number.isFinite) : [];
  if (!places.length || !axis._length) return;
  const half = Math.abs(axis.l2p(1) - axis.l2p(0)) / 2;
  const low = Math.max(0, Math.min(...places) - half), high = Math.min(axis._length, Math.max(...places) + half);
  if (high <= low) return;
  const band = document.createElement("div");
  band.className = "link-band";
  const [left, top, width, height] =
    letter === "x"
      ? [axis._offset + low, other._offset, high - low, other._length]
      : [other._offset, axis._offset + low, other._length, high - low];
  Object.assign(band.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
  plot.querySelector(".svg-container")?.append(band);
}

function showLinks(rank, step, source) {
  hideLinks();
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    if (plot === source || !plot.offsetParent || !plot._fullLayout) continue;
    if (rank !== null) mark(plot, "y", rowsOf(plot, rank));
    if (step !== null && plot.layout.meta?.steps) mark(plot, "x", [step]);
  }
  const headline = document.querySelector(".verdict .headline");
  headline?.classList.toggle("linked", rank !== null && new RegExp(`\\brank ${rank}\\b`, "i").test(headline.textContent));
}

function hideLinks() {
  for (const band of document.querySelectorAll(".link-band")) band.remove();
  document.querySelector(".verdict .headline.linked")?.classList.remove("linked");
}

function linkHovers(plot) {
  plot.on("plotly_hover", ({ points: [point] }) => {
    if (!point) return;
    const step = plot.layout.meta?.steps ? Number(point.x) : null;
    showLinks(rankUnder(plot, point), Number.isFinite(step) ? step : null, plot);
  });
  plot.on("plotly_unhover", hideLinks);
}

document.addEventListener("mouseover", (event) => {
  const headline = event.target.closest?.(".verdict .headline");
  const rank = headline?.textContent.match(/\brank (\d+)\b/i);
  if (rank) showLinks(Number(rank[1]), null, null);
});
document.addEventListener("mouseout", (event) => event.target.closest?.(".verdict .headline") && hideLinks());
