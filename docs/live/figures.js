// Puts live figures in the place of the drawings docs/live/SET.PLOT.svg, where scripts run. assets/live_figures.py computes
// each position of a slider beforehand; the plot library is loaded only by pages that have such drawings. If anything is
// missing, the drawings stay.
const FOLDER = new URL(".", import.meta.url).href;
const BUILT = `${FOLDER}built/`;

function drawingsBySet() {
  const found = new Map();
  for (const image of document.querySelectorAll("article img")) {
    const [, set, plot] = image.src.startsWith(FOLDER) ? image.src.match(/([\w-]+)\.(\w+)\.svg$/) ?? [] : [];
    if (!set) continue;
    if (!found.has(set)) found.set(set, []);
    // A paragraph with nothing but the drawing.
    const paragraph = image.closest("p");
    found.get(set).push({ drawing: paragraph?.children.length === 1 ? paragraph : image, plot });
  }
  return found;
}

const theme = () => (document.body.dataset.mdColorScheme === "slate" ? "dark" : "light");

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// The slider above the first figure, and the sentence below it.
function sliderOf({ label, start, positions }, name, onMove) {
  const id = `live-${name}`;
  const value = element("output", { htmlFor: id });
  const text = element("p", { className: "live-text", ariaLive: "polite" });
  const input = element("input", { type: "range", id, min: 0, max: positions.length - 1, step: 1, value: start });
  const show = () => {
    const position = positions[input.valueAsNumber];
    value.value = position.value;
    input.setAttribute("aria-valuetext", position.value);
    text.textContent = position.text;
  };
  input.addEventListener("input", () => (show(), onMove(input.valueAsNumber)));
  show();
  const title = element("label", { htmlFor: id }, label);
  return element("div", { className: "live-slider" }, title, ": ", value, input, text);
}

async function bringToLife(Plotly, name, drawings) {
  const answer = await fetch(`${BUILT}${name}.json`);
  if (!answer.ok) return;
  const set = await answer.json();
  let place = set.start;
  const boxes = drawings.map((each) => ({ ...each, box: element("figure", { className: "live-plot" }) }));
  const draw = ({ box, plot }) => {
    const { data, layout, config } = structuredClone(set.positions[place].figures[plot][theme()]);
    box.ariaLabel = layout.meta.alt;
    box.style.minHeight = `${layout.height}px`;
    return Plotly[box.data ? "react" : "newPlot"](box, { data, layout, config });
  };
  const drawAll = () => Promise.all(boxes.map(draw));
  if (set.positions.length > 1)
    boxes[0].drawing.before(sliderOf(set, name, (moved) => ((place = moved), drawAll())));
  for (const { drawing, box } of boxes) drawing.replaceWith(box);
  await drawAll();
  new MutationObserver(drawAll).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
}

const sets = drawingsBySet();
if (sets.size) {
  const { Plotly } = await import(`${BUILT}plotly.js`);
  await Promise.all([...sets].map(([name, drawings]) => bringToLife(Plotly, name, drawings)));
}
