// A queue's figures over time: from a quarter of an hour to 30 days, with zoom by mouse and by keys.

import { chart } from "./chart.js";
import { button, element, keys } from "./elements.js";
import { get, queuePath } from "./requests.js";
import { timeTextOf, when, zone } from "./times.js";

const RANGES = { "15 minutes": 900, "a day": 86_400, "a week": 604_800, "30 days": 2_592_000 };
const NICE = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14_400, 86_400];
const STEPS = 200;
const LEAST_MS = 10_000;
const FIRST = "15 minutes";

const niceStep = (seconds) => NICE.find((each) => each >= seconds) ?? Math.ceil(seconds / 86_400) * 86_400;

// Charts of a queue; `query` has what its address says of them, `kept` is called when that changes.
export function timeCharts(name, query, kept) {
  let range = query.get("range") in RANGES ? query.get("range") : FIRST;
  let zoomed = query.get("from") && query.get("to")
    ? [Date.parse(query.get("from")), Date.parse(query.get("to"))] : null;
  if (zoomed?.some(Number.isNaN)) zoomed = null;
  let due = 0;
  let shown = [0, 0];
  let isAsked = false;
  let turn = 0;
  let isHeld = false;  // while somebody drags over a chart it is not drawn anew

  const buttons = Object.keys(RANGES).map((each) => button(each, () => choose(each)));
  const drawn = element("div", { class: "charts" });
  const notes = element("p", { class: "soft" });
  const all = element("div", { tabindex: "0", role: "group", "aria-label": "Charts over time", onkeydown: (event) => typed(event) }, drawn);
  const hint = element("span", { class: "soft" }, "drag over a chart, or + − ← → and Escape on it, to zoom");
  const whole = element("section", {}, element("div", { class: "bar" }, ...buttons, hint), all, notes);

  const ends = () => zoomed ?? [Date.now() - RANGES[range] * 1000, Date.now()];

  // Ask for what is shown now; `isAnew`: whatever was asked for before is not wanted any more.
  async function look(isAnew = false) {
    if (isHeld || (isAsked && !isAnew) || Date.now() < due) return;
    const mine = ++turn;
    isAsked = true;
    const [from, to] = ends();
    const step = niceStep((to - from) / 1000 / STEPS);
    const since = Math.floor(from / 1000 / step) * step * 1000;  // so that the broker may keep its answer
    due = Date.now() + Math.min(60, Math.max(5, step / 5)) * 1000;
    const asked = { from: new Date(since).toISOString(), step };
    if (zoomed) asked.to = new Date(Math.min(to, Date.now())).toISOString();
    for (const each of buttons) each.setAttribute("aria-pressed", String(!zoomed && each.textContent === range));
    if (!drawn.children.length) notes.textContent = "reading history…";
    try {
      const series = await get(queuePath(name, "/series"), asked);
      if (isHeld || mine !== turn) return;
      shown = [since, zoomed ? to : Date.now()];
      drawn.replaceChildren(...chartsOf(series, shown, zoom, (held) => { isHeld = held; }));
      notes.textContent = [...marksOf(series.marks), ...series.left_out.map((each) => `left out: ${each}`)].join("; ");
    } catch (error) {
      if (mine !== turn) return;
      drawn.replaceChildren();
      notes.textContent = `No charts: ${error.message}`;
    } finally {
      if (mine === turn) isAsked = false;
    }
  }

  async function again() {
    due = 0;
    isHeld = false;
    kept();
    await look(true);
  }

  function choose(other) {
    [range, zoomed] = [other, null];
    return again();
  }

  function zoom(from, to) {
    const most = Date.now();
    const length = Math.max(LEAST_MS, to - from);
    const end = Math.min(most, from + length);
    zoomed = [end - length, end];
    return again();
  }

  // Move the ends of what is shown, by so many quarters of its length.
  const moved = (begin, end) => () => {
    const [from, to] = shown;
    const quarter = (to - from) / 4;
    zoom(from + begin * quarter, to + end * quarter);
  };

  const typed = keys({
    "+": moved(1, -1), "-": moved(-2, 2), ArrowLeft: moved(-1, -1), ArrowRight: moved(1, 1), Escape: () => choose(range),
  });

  const values = () => (zoomed
    ? { from: new Date(zoomed[0]).toISOString(), to: new Date(zoomed[1]).toISOString() }
    : { range: range === FIRST ? "" : range });

  return { whole, look, values };
}

// Marks in words: of each kind how many, and the last.
function marksOf(marks) {
  const kinds = new Map();
  for (const mark of marks) kinds.set(mark.what, [...kinds.get(mark.what) ?? [], mark]);
  return [...kinds].map(([what, alike]) =>
    `${what} ${alike.length > 1 ? `${alike.length} times, last ` : ""}${when(alike.at(-1).at).slice(0, 19)}`);
}

// Depth, rates and age. A rate is that of its step, whose length is the time since the one before.
function chartsOf(series, [asked, to], zoom, held) {
  const items = series.items;
  if (!items.length) return [];
  const xs = items.map((each) => Date.parse(each.at));
  const from = Math.max(asked, xs[0] - series.step_s * 1000);  // what history does not know takes no room
  const marks = series.marks.map((each) => ({ at: Date.parse(each.at), text: each.what }));
  const seconds = (at) => Math.max(0.001, (xs[at] - (at ? xs[at - 1] : xs[0] - series.step_s * 1000)) / 1000);
  const rate = (count) => items.map((each, at) => count(each) / seconds(at));
  const left = (each) => Object.values(each.departed).reduce((sum, count) => sum + count, 0);
  const shared = { xs, textOf: timeTextOf(from, to), width: 420, ends: [from, to], marks, zoom, held };
  const rates = [
    { name: "in", values: rate((each) => each.arrived) }, { name: "out", values: rate(left) },
    { name: "dead letters", values: rate((each) => each.departed["dead-lettered"] ?? 0) },
    { name: "expired, purged or moved", values: rate(({ departed }) => ["expired", "purged", "moved"].reduce((sum, kind) => sum + (departed[kind] ?? 0), 0)) },
    { name: "failures", values: rate((each) => each.redelivered) },
  ].filter(({ name, values }) => ["in", "out"].includes(name) || values.some(Boolean));
  const titled = (title) => `${title}, by time (${zone()})`;
  return [
    chart(titled("Messages"), { ...shared, series: [{ name: "messages", values: items.map((each) => each.depth) }] }),
    chart(titled("Messages a second"), { ...shared, series: rates }),
    chart(titled("Age of the oldest, in seconds"),
      { ...shared, series: [{ name: "age", values: items.map((each) => each.oldest_age_s) }] }),
  ];
}
