// The finder (Ctrl-K): runs, windows, ranks and hosts from the server, commands from the keys of the page.
// Content from the server is inserted as text and never parsed as markup.
"use strict";

const sfappFinder = {
  found: [],
  chosen: 0,

  open() {
    sfapp.closeAll();
    sfappFinder.dialog ??= sfappFinder.build();
    if (sfappFinder.dialog.open) return;
    sfappFinder.input.value = "";
    sfappFinder.dialog.showModal();
    sfappFinder.input.focus();
    sfappFinder.seek();
  },

  build() {
    const { element } = sfapp.cells;
    const dialog = element("dialog", "finder");
    dialog.setAttribute("aria-label", "Find");
    const input = element("input");
    const list = element("ul");
    list.id = "finder-list";
    for (const [name, value] of Object.entries({
      type: "text", role: "combobox", "aria-label": "Find runs, windows, ranks, hosts and commands",
      "aria-controls": list.id, "aria-expanded": "true", "aria-autocomplete": "list", autocomplete: "off",
      placeholder: "Run, window, rank, host or command", maxlength: "200",
    })) input.setAttribute(name, value);
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Found");
    const none = element("div", "none");
    none.setAttribute("role", "status");
    dialog.append(input, list, none);
    document.body.append(dialog);
    input.addEventListener("input", () => {
      clearTimeout(sfappFinder.timer);
      sfappFinder.timer = setTimeout(sfappFinder.seek, 120);
    });
    dialog.addEventListener("keydown", sfappFinder.handleKey);
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    return Object.assign(sfappFinder, { input, list, none }) && dialog;
  },

  handleKey(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) {
      event.preventDefault();
      sfappFinder.choose(sfappFinder.chosen + by);
    } else if (event.key === "Enter") {
      event.preventDefault();
      sfappFinder.use(sfappFinder.found[sfappFinder.chosen]);
    }
    event.stopPropagation();
  },

  async seek() {
    const text = sfappFinder.input.value.trim();
    const commands = sfappFinder.commands(text);
    const path = location.pathname.slice(sfapp.root().length);
    const ask = new URLSearchParams({ text, path, view: location.search.slice(1) });
    let found = [];
    try {
      const response = await fetch(`${sfapp.root()}/find.json?${ask}`);
      if (response.ok) found = (await response.json()).found;
    } catch {
      // The server is away; commands still work.
    }
    if (text === sfappFinder.input.value.trim()) sfappFinder.show([...found, ...commands]);
  },

  commands(text) {
    const words = text.toLowerCase().split(/\s+/);
    const controls = [...document.querySelectorAll("[aria-keyshortcuts]")].filter((each) => each.offsetParent);
    return controls
      .filter((control) => !control.matches(".find-switch"))
      .map((control) => ({
        kind: "command",
        text: control.getAttribute("aria-label") || control.textContent.trim() || control.title,
        detail: `key ${control.getAttribute("aria-keyshortcuts").split(" ")[0]}`,
        control,
      }))
      .filter((each) => words.every((word) => each.text.toLowerCase().includes(word)));
  },

  show(found) {
    const { element } = sfapp.cells;
    sfappFinder.found = found;
    sfappFinder.none.textContent = found.length ? "" : "Nothing found";
    sfappFinder.none.hidden = found.length > 0;
    sfappFinder.list.replaceChildren(
      ...found.map((each, place) => {
        const row = element("li");
        row.id = `found-${place}`;
        row.setAttribute("role", "option");
        row.append(element("span", "kind", each.kind), element("span", "what", each.text));
        row.append(element("span", "detail", each.detail));
        row.addEventListener("click", () => sfappFinder.use(each));
        row.addEventListener("mousemove", () => sfappFinder.choose(place));
        return row;
      }),
    );
    sfappFinder.choose(0);
  },

  choose(place) {
    const rows = [...sfappFinder.list.children];
    if (!rows.length) return sfappFinder.input.removeAttribute("aria-activedescendant");
    sfappFinder.chosen = (place + rows.length) % rows.length;
    rows.forEach((row, each) => row.setAttribute("aria-selected", each === sfappFinder.chosen));
    sfappFinder.input.setAttribute("aria-activedescendant", rows[sfappFinder.chosen].id);
    rows[sfappFinder.chosen].scrollIntoView({ block: "nearest" });
  },

  use(found) {
    if (!found) return;
    sfappFinder.dialog.close();
    if (found.control) sfapp.use(found.control);
    else location.assign(sfapp.root() + found.href);
  },
};
