"use strict";
(async () => {
  const unpack = async (id) => {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const changed = (light, changes) => {
    const made = structuredClone(light);
    for (const [path, ...value] of changes) {
      const last = path.pop();
      const holder = path.reduce((inner, key) => inner[key], made);
      if (value.length) holder[last] = value[0];
      else delete holder[last];
    }
    return made;
  };
  const library = document.createElement("script");
  library.textContent = await unpack("bundle");
  document.head.append(library);
  const plots = JSON.parse(await unpack("plots")).map(({ light, dark }) => ({ light, dark: changed(light, dark) }));
  const boxes = [...document.querySelectorAll(".plot")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const draw = (isDark) => boxes.map((box, place) => {
    const { data, layout, config } = structuredClone(isDark ? plots[place].dark : plots[place].light);
    const still = { ...config, responsive: true, edits: {}, displayModeBar: "hover" };
    return window.Plotly.react(box, data, layout, still);
  });
  await Promise.all(draw(dark.matches));
  dark.addEventListener("change", () => draw(dark.matches));
  window.addEventListener("beforeprint", () => draw(false));
  window.addEventListener("afterprint", () => draw(dark.matches));
  document.documentElement.dataset.drawn = String(boxes.length);
})();
