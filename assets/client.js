// Browser-side code: keyboard shortcuts, the address bar, remembered choices and the table of windows.
// Content from the server is inserted as text and never parsed as markup.
"use strict";

const sfapp = {
  // The path below which a proxy serves the app; addresses from the server's data do not have it.
  root: () => window.path_prefix ?? "",

  // --- keys -------------------------------------------------------------------------------------------------
  // An element with aria-keyshortcuts is clicked, or focused if it is a field, when one of its keys is pressed.
  handleKey(event) {
    if (event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
    const target = event.target;
    const typing = target.closest?.("input, textarea, select, [contenteditable=true]");
    if (event.key === "Escape" && typing) return target.blur();
    if (event.key === "Escape") sfapp.closeAll();
    // Inside a field, Ctrl-Z is the field's own undo; Ctrl-K works everywhere.
    const control = event.ctrlKey || event.metaKey ? "Control+" : "";
    if (typing && !(control && event.key === "k")) return;
    if (control && event.shiftKey) return;
    // Shift and an arrow move the selected item of an incident.
    const direction = event.shiftKey && { ArrowUp: "up", ArrowDown: "down" }[event.key];
    const moveButton =
      direction && target.closest?.("[data-movable]")?.querySelector(`[data-move="${direction}"]`);
    if (moveButton) return event.preventDefault(), moveButton.click();
    const usesArrows = target.closest?.('[role="slider"], [role="tab"], [role="listbox"], [role="radio"], .ag-root');
    if (usesArrows && event.key.startsWith("Arrow")) return;
    const named = sfapp.withKey(control + event.key);
    if (!named) {
      if (control) return;
      const by = { j: 1, k: -1 }[event.key];
      if (by && sfapp.focusNextRow(by)) event.preventDefault();
      return;
    }
    event.preventDefault();
    sfapp.use(named);
  },
  withKey(key) {
    return [...document.querySelectorAll("[aria-keyshortcuts]")].find(
      (element) => element.getAttribute("aria-keyshortcuts").split(" ").includes(key) && element.offsetParent,
    );
  },
  use(control) {
    const field = control.matches("input") ? control : control.querySelector("input");
    if (field) field.focus();
    else control.click();
  },

  // --- drawer and menu of narrow screens --------------------------------------------------------------------
  switchDrawer() {
    sfapp.switchOn("drawer-open", ".drawer-switch", ".rail");
  },
  switchMenu() {
    sfapp.switchOn("menu-open", ".menu-switch", ".top-menu");
  },
  switchOn(name, button, part) {
    const open = document.body.classList.toggle(name);
    document.querySelector(button)?.setAttribute("aria-expanded", open);
    if (open) document.querySelector(part)?.querySelector("a, button, input, [tabindex='0']")?.focus();
    else document.querySelector(button)?.focus();
  },
  closeAll() {
    if (document.body.classList.contains("drawer-open")) sfapp.switchDrawer();
    if (document.body.classList.contains("menu-open")) sfapp.switchMenu();
  },

  // --- the address ------------------------------------------------------------------------------------------
  // A dragged slider changes the view many times a second; browsers limit how often the address can change.
  // ``depth`` counts the changes that can be undone. Each has an entry in the browser's history, in which
  // ``view`` is its place, so that Back undoes it and Undo goes back.
  showAddress(url, depth) {
    if (sfapp.address && sfapp.address.depth !== depth) sfapp.writeAddress();
    clearTimeout(sfapp.addressTimer);
    sfapp.address = { url, depth };
    sfapp.addressTimer = setTimeout(sfapp.writeAddress, 150);
  },
  view: history.state?.view ?? 0,
  firstView: history.state?.view ?? 0, // after a reload, nothing of what was done before can be undone
  writeAddress() {
    if (!sfapp.address) return;
    const { url, depth } = sfapp.address;
    sfapp.address = null;
    clearTimeout(sfapp.addressTimer);
    const [at, view] = [sfapp.view, depth === null ? sfapp.view : sfapp.firstView + depth];
    const state = { ...history.state, view };
    sfapp.view = view;
    if (view > at) return history.pushState(state, "", url);
    if (view === at) return history.replaceState(state, "", url);
    sfapp.returning = url;
    history.go(view - at);
  },
  followAddress(event) {
    const view = event.state?.view;
    if (view === undefined || sfapp.returning) {
      // A link to a place on the page, which has no place of its own in the order, or the end of an undo.
      history.replaceState({ ...history.state, view: sfapp.view }, "", sfapp.returning ?? location.href);
      sfapp.returning = null;
      return;
    }
    sfapp.view = view;
    sfapp.firstView = Math.min(sfapp.firstView, view);
    emitEvent("address", [location.search.slice(1), view - sfapp.firstView]);
  },

  async copyLink() {
    // Browsers deny the clipboard to pages loaded over plain http from another machine.
    const url = location.href;
    if (navigator.clipboard) await navigator.clipboard.writeText(url);
    else window.prompt("Copy this link", url);
    Quasar.Notify.create(navigator.clipboard ? "Link to this view copied" : "The link opens this view");
  },

  // Plotly keeps what its legend hid when it draws the plot again, so the entry of the legend is clicked.
  switchLegend(button, name) {
    const entries = [...button.closest(".figure").querySelectorAll(".legend .traces")];
    const entry = entries.find((each) => each.textContent.trim() === name)?.querySelector(".legendtoggle");
    for (const kind of ["mousedown", "mouseup"]) entry?.dispatchEvent(new MouseEvent(kind, { bubbles: true }));
  },

  // --- choices kept in cookies ------------------------------------------------------------------------------
  // The theme is stored and applied at once: the page may be closed, or the key pressed again, before the server answers.
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
  showTips() {
    sfapp.remember("read", "");
    sfapp.remember("seen", "");
    location.reload(); // The address restores the view.
  },
  remembered(name) {
    return document.cookie.match(`(?:^|; )sfapp-${name}=([^;]*)`)?.[1] ?? "";
  },
  remember(name, value) {
    document.cookie = `sfapp-${name}=${value}; path=/; max-age=31536000; samesite=strict`;
  },

  // --- the table of windows ---------------------------------------------------------------------------------
  // The heads of columns show the order; one by columns that the table lacks is in `sort` alone.
  windows(query, sort) {
    return {
      async getRows(params) {
        const request = new URLSearchParams(query);
        request.set("offset", params.startRow);
        request.set("limit", params.endRow - params.startRow);
        request.set("as_text", "1");
        const order = sfapp.orderOf(params.sortModel) || sort;
        if (order) request.set("sort", order);
        try {
          const response = await fetch(`${sfapp.root()}/windows.json?${request}`);
          if (!response.ok) throw new Error((await response.json()).error ?? response.statusText);
          const found = await response.json();
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
  orderOf(columns) {
    return columns.map((column) => `${column.colId}:${column.sort}`).join();
  },
  emitSort(params) {
    if (params.source !== "uiColumnSorted") return; // the page set it itself
    const sorted = params.api.getColumnState().filter((column) => column.sort);
    emitEvent("sorted", sfapp.orderOf(sorted.sort((one, other) => one.sortIndex - other.sortIndex)));
  },
  listWindows(id, query, sort, isReordered) {
    const api = getElement(id)?.api;
    if (isReordered) {
      const terms = (sort ?? "").split(",").map((term) => term.split(":"));
      const state = terms.map(([colId, order], sortIndex) => ({ colId, sort: order || "asc", sortIndex }));
      api?.applyColumnState({ state, defaultState: { sort: null } });
    }
    api?.setGridOption("datasource", sfapp.windows(query, sort));
  },
  refreshWindows(id) {
    getElement(id)?.api?.refreshInfiniteCache();
  },
  openRow(params) {
    if (!params.data || params.event?.target?.closest?.("a")) return;
    if (params.event?.ctrlKey || params.event?.metaKey) window.open(sfapp.root() + params.data.shown.href);
    else location.assign(sfapp.root() + params.data.shown.href);
  },
  openRowByKey(params) {
    if (params.event.key === "Enter") sfapp.openRow(params);
  },
  focusNextRow(by) {
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
      const created = document.createElement(tag);
      if (classes) created.className = classes;
      if (text !== undefined) created.textContent = text;
      return created;
    },
    window(params) {
      if (!params.data) return "";
      const link = sfapp.cells.element("a", "", params.value);
      link.href = sfapp.root() + params.data.shown.href;
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
      for (const [colour, share] of params.value) {
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

document.addEventListener("keydown", sfapp.handleKey);
addEventListener("popstate", sfapp.followAddress);
history.replaceState({ ...history.state, view: sfapp.view }, "");
// The plots of a first visit may have been drawn in the theme that the system does not prefer.
{
  const drawn = document.documentElement.dataset.drawn;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const tell = () => (window.did_handshake ? emitEvent("system_theme", dark) : setTimeout(tell, 10));
  if (drawn && dark !== (drawn === "dark")) tell();
}
// NiceGUI sets the color scheme with every update of the page, and even an equal one restyles all of it.
{
  const scheme = document.getElementById("nicegui-color-scheme");
  const set = scheme.setAttribute.bind(scheme);
  scheme.setAttribute = (name, value) => scheme.getAttribute(name) === value || set(name, value);
}
// A restarted app knows none of its former cookies: ask for the token instead of connecting in vain forever.
{
  const refused = (error) => error.description === 401 && location.reload();
  const watch = () => (window.socket ? window.socket.on("connect_error", refused) : setTimeout(watch, 100));
  watch();
}
// Follow the system's theme when it changes, unless a theme was chosen here.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
  if (sfapp.remembered("dark")) return;
  sfapp.remember("system", event.matches ? "dark" : "light");
  emitEvent("system_theme", event.matches);
});
// Tables scroll inside, and the keyboard can scroll only what it can focus. Quasar's loading bar has no name.
{
  let due = false;
  const reach = () => {
    due = false;
    document.querySelector(".q-loading-bar:not([aria-label])")?.setAttribute("aria-label", "Loading");
    for (const part of document.querySelectorAll(".q-table__middle:not([tabindex])")) {
      if (part.scrollHeight <= part.clientHeight && part.scrollWidth <= part.clientWidth) continue;
      for (const [name, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", "Table"]])
        part.setAttribute(name, value);
    }
  };
  const changed = () => due || ((due = true), setTimeout(reach, 100));
  new MutationObserver(changed).observe(document.body, { childList: true, subtree: true });
  addEventListener("resize", changed);
}
// The library of plots takes a while to start; it does so while the server prepares the first plot.
addEventListener("load", () => {
  if (document.querySelector(".timeline, .panels, .problem-plot")) import("nicegui-plotly");
});
// The server stops updating a hidden page.
document.addEventListener("visibilitychange", () => emitEvent("visible", !document.hidden));
if (location.hash === "#search") {
  // The search field exists once the page is mounted.
  const observer = new MutationObserver(() => {
    const field = document.querySelector(".search input");
    if (field) observer.disconnect();
    field?.focus();
  });
  observer.observe(document.documentElement, { childList: true, subtree: true });
}
