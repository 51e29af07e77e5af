// What must happen in the browser itself: keys, the address, the grid's cells, plots that follow each other.
// Everything shown comes from the server as text; nothing here builds markup from it.
"use strict";

const sfapp = {
  // --- keys -------------------------------------------------------------------------------------------------
  // Whatever carries aria-keyshortcuts is clicked (or focused, for fields) when one of its keys is pressed.
  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const target = event.target;
    const typing = target.closest?.("input, textarea, select, [contenteditable=true]");
    if (event.key === "Escape" && typing) return target.blur();
    if (typing) return;
    // A piece of an incident that has the focus, or a button in it, is moved among the others.
    const by = event.shiftKey && { ArrowUp: "up", ArrowDown: "down" }[event.key];
    const mover = by && target.closest?.("[data-movable]")?.querySelector(`[data-move="${by}"]`);
    if (mover) return event.preventDefault(), mover.click();
    const steered = target.closest?.('[role="slider"], [role="tab"], [role="listbox"], [role="radio"], .ag-root');
    if (steered && event.key.startsWith("Arrow")) return;
    const control = [...document.querySelectorAll("[aria-keyshortcuts]")].find(
      (element) => element.getAttribute("aria-keyshortcuts").split(" ").includes(event.key) && element.offsetParent,
    );
    if (!control) {
      const by = { j: 1, k: -1 }[event.key];
      if (by && sfapp.walkRows(by)) event.preventDefault();
      return;
    }
    event.preventDefault();
    const field = control.matches("input") ? control : control.querySelector("input");
    if (field) field.focus();
    else control.click();
  },

  // --- the address ------------------------------------------------------------------------------------------
  // A dragged slider changes the view many times a second; browsers limit how often the address may change.
  address(url) {
    clearTimeout(sfapp.addressTimer);
    sfapp.addressTimer = setTimeout(() => history.replaceState(history.state, "", url), 150);
  },

  async copyLink() {
    // The clipboard is closed to pages that came over plain http from another machine.
    const url = location.href;
    if (navigator.clipboard) await navigator.clipboard.writeText(url);
    else window.prompt("Copy this link", url);
    Quasar.Notify.create(navigator.clipboard ? "link copied: it holds this whole view" : "the link holds this whole view");
  },

  // --- what the browser remembers ---------------------------------------------------------------------------
  // Remembered and worn before the server hears of it: the page may be left, or the key pressed again, sooner.
  switchTheme() {
    const dark = !Quasar.Dark.isActive;
    sfapp.remember("dark", dark ? 1 : 0);
    Quasar.Dark.set(dark);
    return dark;
  },
  rememberSeen() {
    sfapp.remember("seen", 1);
  },
  rememberRead(name) {
    const read = sfapp.remembered("read").split(".").filter((known) => known && known !== name);
    sfapp.remember("read", [...read, name].join("."));
  },
  rememberName(name) {
    sfapp.remember("name", encodeURIComponent(name));
  },
  showAids() {
    sfapp.remember("read", "");
    sfapp.remember("seen", "");
    location.reload(); // the address holds the view
  },
  remembered(name) {
    return document.cookie.match(`(?:^|; )sfapp-${name}=([^;]*)`)?.[1] ?? "";
  },
  remember(name, value) {
    document.cookie = `sfapp-${name}=${value}; path=/; max-age=31536000; samesite=strict`;
  },

  // --- the table of windows ---------------------------------------------------------------------------------
  windows(query) {
    return {
      async getRows(params) {
        const asked = new URLSearchParams(query);
        asked.set("offset", params.startRow);
        asked.set("limit", params.endRow - params.startRow);
        asked.set("as_text", "1");
        if (params.sortModel.length) asked.set("sort", params.sortModel.map((s) => `${s.colId}:${s.sort}`).join());
        try {
          const answer = await fetch(`/index.json?${asked}`);
          if (!answer.ok) throw new Error((await answer.json()).error ?? answer.statusText);
          const found = await answer.json();
          params.successCallback(found.windows, found.total);
          sfapp.overlay(params, found.total === 0);
        } catch (error) {
          params.failCallback();
          Quasar.Notify.create({ type: "negative", message: `The windows could not be listed: ${error.message}` });
        }
      },
    };
  },
  overlay(params, isEmpty) {
    const grid = document.querySelector(".windows-grid");
    const api = grid && getElement(grid)?.api;
    if (isEmpty) api?.showNoRowsOverlay();
    else api?.hideOverlay();
  },
  listWindows(id, query) {
    getElement(id)?.api?.setGridOption("datasource", sfapp.windows(query));
  },
  refreshWindows(id) {
    getElement(id)?.api?.refreshInfiniteCache();
  },
  openRow(params) {
    if (!params.data || params.event?.target?.closest?.("a")) return;
    if (params.event?.ctrlKey || params.event?.metaKey) window.open(params.data.shown.href);
    else location.assign(params.data.shown.href);
  },
  openRowByKey(params) {
    if (params.event.key === "Enter") sfapp.openRow(params);
  },
  walkRows(by) {
    const grid = document.querySelector(".windows-grid");
    const api = grid && getElement(grid)?.api;
    if (!api || !api.getDisplayedRowCount()) return false;
    const focused = api.getFocusedCell();
    const row = Math.min(Math.max((focused ? focused.rowIndex : -1) + by, 0), api.getDisplayedRowCount() - 1);
    api.ensureIndexVisible(row);
    api.setFocusedCell(row, "window");
    return true;
  },
  cells: {
    element(tag, classes, text) {
      const made = document.createElement(tag);
      if (classes) made.className = classes;
      if (text !== undefined) made.textContent = text;
      return made;
    },
    window(params) {
      if (!params.data) return "";
      const link = sfapp.cells.element("a", "", params.value);
      link.href = params.data.shown.href;
      link.title = params.data.run_id;
      return link;
    },
    aim(params) {
      if (!params.data) return "";
      const shown = params.data.shown;
      const cell = sfapp.cells.element("span", "aim-cell");
      cell.append(sfapp.cells.element("span", shown.level === "quiet" ? "muted" : "strong", shown.aim));
      if (shown.persistence) cell.append(sfapp.cells.element("span", "chip chip-culprit", shown.persistence));
      return cell;
    },
    severity(params) {
      if (!params.data) return "";
      const cell = sfapp.cells.element("span", `level level-${params.data.shown.level}`, params.value);
      cell.title = params.data.shown.level;
      return cell;
    },
    shares(params) {
      if (!params.data) return "";
      const cell = sfapp.cells.element("span", "bar-cell");
      const bar = sfapp.cells.element("span");
      for (const [colour, share, words] of params.value) {
        const part = sfapp.cells.element("i");
        part.style.background = colour;
        part.style.flexGrow = share;
        bar.append(part);
      }
      cell.title = params.value.map(([, , words]) => words).join(", ");
      cell.append(bar);
      return cell;
    },
    labels(params) {
      if (!params.data) return "";
      const cell = sfapp.cells.element("span", "chip-cell");
      for (const label of params.value) cell.append(sfapp.cells.element("span", "chip", label));
      return cell;
    },
  },
};

document.addEventListener("keydown", sfapp.pressed);
// The system turns dark in the evening: follow it, unless a theme was chosen here.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
  if (sfapp.remembered("dark")) return;
  sfapp.remember("system", event.matches ? "dark" : "light");
  emitEvent("system_theme", event.matches);
});
// A page that nobody sees need not be brought up to date.
document.addEventListener("visibilitychange", () => emitEvent("visible", !document.hidden));
if (location.hash === "#search") {
  // The field is there once the page is mounted.
  const waiting = new MutationObserver(() => {
    const field = document.querySelector(".search input");
    if (field) waiting.disconnect();
    field?.focus();
  });
  waiting.observe(document.documentElement, { childList: true, subtree: true });
}
