// What NiceGUI's plotly component imports: the cartesian bundle instead of the whole one. Texts that have no room
// at a plot's width are left out after each draw, because the server does not know the width.
import "./vendor/plotly-cartesian-3.7.0.min.js";

export const Plotly = window.Plotly;

const AXES_AND_KEYS =
  '[class*="tick"] text, [class*="title"], .legendtext, .shape-label text, .infolayer [class*="cbtitle"] text';
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

// Move an annotation back into the plot where it is cut at an edge; returns its corners there.
function moveInside(group, text, frame) {
  group.style.translate = "";
  const found = corners(text);
  if (!found) return null;
  const spans = [0, 1].map((axis) => found.map((corner) => corner[axis]));
  const [right, down] = spans.map((along, axis) => {
    const [low, high] = axis ? [frame.top, frame.bottom] : [frame.left, frame.right];
    const before = low - Math.min(...along), beyond = Math.max(...along) - high;
    return before > 0 ? before + 1 : beyond > 0 ? -beyond - 1 : 0;
  });
  if (!right && !down) return found;
  group.style.translate = `${right}px ${down}px`;
  return found.map(([x, y]) => [x + right, y + down]);
}

// Axes, keys and thresholds stay; then pinned notes, annotations in their order, and texts of traces, while there is
// room. What is left out is in the hover text.
function leaveOutWhatCollides(plot) {
  const frame = plot.querySelector(".main-svg")?.getBoundingClientRect();
  if (!frame?.width) return;
  const taken = [...plot.querySelectorAll(AXES_AND_KEYS)].map(corners).filter(Boolean);
  const named = plot._fullLayout.annotations ?? [];
  const annotations = [...plot.querySelectorAll(".annotation")].map((group) => {
    const index = Number(group.dataset.index);
    return { group, order: named[index]?.name === "note" ? -1 : index, text: group.querySelector("text") };
  });
  for (const { group, text } of annotations.sort((one, other) => one.order - other.order)) {
    if (!text?.textContent) continue;
    keepOrHide(group, moveInside(group.querySelector(".annotation-text-g"), text, frame), taken);
  }
  for (const text of plot.querySelectorAll(IN_TRACES)) keepOrHide(text, corners(text), taken);
}

function keepOrHide(element, found, taken) {
  const collides = found && taken.some((other) => overlap(found, other));
  element.style.visibility = collides ? "hidden" : "";
  if (found && !collides) taken.push(found);
}

const newPlot = Plotly.newPlot;
Plotly.newPlot = (plot, ...settings) => {
  const drawn = newPlot(plot, ...settings);
  const tidy = () => leaveOutWhatCollides(plot);
  plot.on("plotly_afterplot", tidy);
  plot.on("plotly_relayout", tidy);
  return drawn.then((element) => (tidy(), element));
};

// After a change of width, Plotly leaves the legend where the rows of the width before put it, on the bars.
const resize = Plotly.Plots.resize;
Plotly.Plots.resize = async (plot) => {
  const before = plot._fullLayout?.width;
  await resize(plot);
  if (plot._fullLayout?.showlegend && plot._fullLayout.width !== before) await Plotly.redraw(plot);
};
