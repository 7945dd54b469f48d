// Elements of the page. What comes from the broker is only ever text: names, properties and bodies
// are chosen by whoever sends messages.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const button = (text, onclick, label = null, more = {}) =>
  element("button", { type: "button", "aria-label": label, onclick, ...more }, text);

// What a key does: `acts` by its name. One that is pressed with Ctrl, Alt or Meta is the browser's.
export const keys = (acts) => (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(acts, event.key)) return;
  event.preventDefault();
  acts[event.key]();
};

export const linkAsking = (text, query, ...parts) =>
  element("a", { href: `#/${parts.map(encodeURIComponent).join("/")}?${new URLSearchParams(query)}`.replace(/\?$/, "") }, text);

export const link = (text, ...parts) => linkAsking(text, {}, ...parts);

export function show(...children) {
  document.getElementById("main").replaceChildren(...children);
}

export function say(text) {
  document.getElementById("status").textContent = text;
}

// An order that somebody gives: what the one before complained of goes, and what this one does is shown.
export const order = (run) => async (...given) => {
  complain(null);
  try {
    await run(...given);
  } catch (error) {
    complain(error);
  }
};

export function complain(error) {
  document.getElementById("problem").textContent = error ? error.message : "";
}

const classOf = (column) =>
  [column.isNumber && "number", column.isExtra && "extra", column.isShort && "short"].filter(Boolean).join(" ") || null;

// A table whose rows are kept by their key, so that what has the focus keeps it while figures change.
// A column has a title and `text(row)`, or `node(row)`, which is made once for each key, or
// `picture(row)`, which is made anew each time and has nothing that takes the focus. `head` stands in
// the place of its title. One that is `isExtra` is left out on a narrow screen; `isShort`: in one line. `tone(row)` is the colour of a state: good, care, bad, or none. Where `sorting` is given, a column with `sort` has a button
// that sorts by it: `sorting.by` is that of now, - before it for the largest first.
export function table(caption, columns, keyOf, sorting) {
  const head = columns.map((each) => element("th", { scope: "col", class: classOf(each), "data-sort": each.sort ?? null },
    each.sort && sorting ? button(each.title, () => sorted(each.sort), null, { class: "sort" }) : each.head ?? each.title));
  const body = element("tbody");
  const whole = element("table", { "aria-label": caption },
    element("thead", {}, element("tr", {}, ...head)), body);
  const there = new Map();

  function marked() {
    for (const each of head) {
      const by = each.dataset.sort;
      const is = sorting?.by === by ? "ascending" : sorting?.by === `-${by}` ? "descending" : null;
      if (by && is) each.setAttribute("aria-sort", is);
      else each.removeAttribute("aria-sort");
    }
  }

  // The largest first, then the least, then as it was.
  function sorted(by) {
    sorting.by = { [`-${by}`]: by, [by]: "" }[sorting.by] ?? `-${by}`;
    marked();
    sorting.go();
  }
  marked();

  function made(row) {
    const cells = columns.map((each) =>
      element("td", { class: classOf(each), "data-title": each.title }, each.node ? each.node(row) : ""));
    return element("tr", {}, ...cells);
  }

  function fill(rows) {
    const wanted = new Set(rows.map(keyOf));
    for (const [key, line] of there) {
      if (!wanted.has(key)) {
        line.remove();
        there.delete(key);
      }
    }
    rows.forEach((row, index) => {
      const key = keyOf(row);
      if (!there.has(key)) there.set(key, made(row));
      const line = there.get(key);
      columns.forEach((each, column) => {
        if (each.tone) line.cells[column].dataset.tone = each.tone(row);
        if (each.picture) line.cells[column].replaceChildren(each.picture(row));
        if (!each.text) return;
        const text = each.text(row);
        if (line.cells[column].textContent !== text) line.cells[column].textContent = text;
      });
      if (body.rows[index] !== line) body.insertBefore(line, body.rows[index] ?? null);
    });
  }
  return { whole, fill };
}

// Buttons that page through a list; `go(offset)` shows another page.
export function pager(limit, go) {
  const back = button("Previous", () => go(offset - limit), null, { disabled: true });
  const on = button("Next", () => go(next), null, { disabled: true });
  const where = element("span");
  let offset = 0;
  let next = limit;
  function at(page, count) {
    offset = page.offset;
    next = page.next_offset ?? offset + limit; // a page of messages may end earlier
    back.disabled = offset === 0;
    on.disabled = offset + count >= page.total;
    const last = offset + count;
    where.textContent = count ? `${offset + 1} to ${last} of ${page.total}` : `none of ${page.total}`;
  }
  // Show the page before or after, if there is one; true: it is shown.
  async function turn(by) {
    const isLast = (by < 0 ? back : on).disabled;
    if (!isLast) await go(by < 0 ? offset - limit : next);
    return !isLast;
  }
  return { whole: element("div", { class: "bar" }, back, on, where), at, turn };
}

export function terms(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", {}, ...known.flatMap(([name, value]) =>
    [element("dt", {}, name), element("dd", {}, value instanceof Node ? value : String(value))]));
}

// Ask before something is done; true if it shall be.
export function confirmed(title, go, ...body) {
  const dialog = document.getElementById("dialog");
  document.getElementById("dialog-title").textContent = title;
  document.getElementById("dialog-body").replaceChildren(...body);
  document.getElementById("dialog-go").textContent = go;
  document.getElementById("dialog-cancel").onclick = () => dialog.close("cancel");
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "go"), { once: true }));
}
