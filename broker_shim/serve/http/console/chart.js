// Charts as SVG: lines over numbers and times, bars over names. A title and a description in words
// tell a screen reader what a look tells; lines differ in dashes, not in colour alone.
//
// Decision: own code, no uPlot. It draws on a canvas, so words for screen readers, marks with a name,
// bars over names, letters of a cell's line and colours by CSS would stay ours: 50 KB for 90 lines.

import { brush } from "./brush.js";
import { element, svg } from "./elements.js";

const HEIGHT = 190;
const LEFT = 52;
const RIGHT = 14;
const TOP = 8;
const BOTTOM = 22;
const LABEL_WIDTH = 84;
const LETTER_WIDTH = 7;
const MOST_DOTS = 30;

const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
let count = 0;

// Round numbers from zero, or from the least that is below it, to at least the most.
function ticksOf(values) {
  const least = Math.min(0, ...values);
  const most = Math.max(least + Number.EPSILON, 0, ...values);
  const rough = (most - least) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const fitting = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const step = values.every(Number.isInteger) ? Math.max(1, fitting) : fitting;
  const first = Math.floor(least / step);
  return Array.from({ length: Math.max(1, Math.ceil(most / step)) - first + 1 }, (_, at) => (first + at) * step);
}

const cut = (text, letters) => (text.length > letters ? `${text.slice(0, Math.max(1, letters - 1))}…` : text);

// What a chart shows: `xs` are numbers, or names; each of `series` has a name and a value (or null)
// for each x; `textOf` tells an x in words; `isBars`: bars, else lines. `width`: about as many pixels
// as it gets, so that its letters have their size. Over numbers: `ends` of the scale, `marks` of
// moments (`at`, `text`), and `zoom` and `held` for a pointer (`brush`).
export function chart(title, { xs, series, textOf = String, isBars = false, width = 900, ends, marks = [], zoom, held }) {
  const known = series.map((each) => each.values.filter((value) => value !== null));
  const ticks = ticksOf(known.flat());
  const [low, high] = [ticks[0], ticks.at(-1)];
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - BOTTOM - TOP);
  const isScale = !isBars && xs.length > 0 && xs.every((each) => typeof each === "number");
  const span = width - LEFT - RIGHT;
  const [from, to] = isScale ? ends ?? [Math.min(...xs), Math.max(...xs)] : [-0.5, xs.length - 0.5];
  const seen = marks.filter((mark) => mark.at >= from && mark.at <= to);
  const place = (value) => LEFT + ((value - from) / (to - from || 1)) * span;
  const x = (at) => place(isScale ? xs[at] : at);
  const id = `chart-${++count}`;
  const words = series.map((each, at) => (known[at].length
    ? `${each.name}: least ${short.format(Math.min(...known[at]))}, most ${short.format(Math.max(...known[at]))},`
      + ` last ${short.format(known[at].at(-1))}`
    : `${each.name}: none`));
  const range = xs.length ? ` from ${textOf(xs[0])} to ${textOf(xs.at(-1))}` : "";
  const drawn = svg("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-labelledby": `${id} ${id}-words`, class: "chart",
  },
  svg("title", { id }, title),
  svg("desc", { id: `${id}-words` }, `${words.join("; ")}${range}`),
  ...ticks.map((tick) => svg("g", { class: tick === 0 ? "zero" : "grid" },
    svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
    svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, short.format(tick)))),
  ...labelsOf(isScale ? [from, to] : xs, isScale, place, span, textOf),
  ...seen.map(({ at, text }) => svg("line",
    { class: "mark", "data-what": text, x1: place(at), x2: place(at), y1: TOP, y2: HEIGHT - BOTTOM }, svg("title", {}, `${textOf(at)} ${text}`))),
  ...series.map((each, at) => (isBars
    ? barsOf(each, at, { xs, x, y, textOf, width: (0.8 * span) / (xs.length || 1) / series.length, of: series.length })
    : lineOf(each, at, { xs, x, y, textOf }))));
  const reading = element("span", { class: "reading" });
  if (zoom) {
    const timeOf = (left) => Math.max(from, Math.min(to, from + ((left - LEFT) / span) * (to - from)));
    const tell = (at) => { reading.textContent = at === null ? "" : readAt(at, xs, series, textOf, seen); };
    brush(drawn, { top: TOP, bottom: HEIGHT - BOTTOM, timeOf, tell, held, zoom });
  }
  const legends = series.length > 1 ? series.map((each, at) => legendOf(each, at, isBars)) : [];
  return element("figure", {}, element("figcaption", {}, title, ...legends, reading), drawn);
}

// The values of the x that is nearest to a place, and the marks to which it is the nearest, too.
function readAt(at, xs, series, textOf, marks) {
  const nearestTo = (moment) => {
    const distances = xs.map((x) => Math.abs(x - moment));
    return distances.indexOf(Math.min(...distances));
  };
  const nearest = nearestTo(at);
  const marked = new Set(marks.filter((mark) => nearestTo(mark.at) === nearest).map(({ text }) => text));
  const values = series.map(({ name, values: found }) => `${name} ${found[nearest] === null ? "none" : short.format(found[nearest])}`);
  return `${textOf(xs[nearest])}: ${[...values, ...marked].join(", ")}`;
}

function legendOf({ name }, number, isBars) {
  const sign = isBars ? svg("rect", { x: 8, width: 8, height: 8 }) : svg("path", { d: "M1 4H23" });
  return element("span", { class: "legend" },
    svg("svg", { viewBox: "0 0 24 8", class: `series-${number % 4}`, "aria-hidden": "true" }, sign), name);
}

// Texts below: of a scale at equal distances from its least to its most, of names as many as have
// room. The first and the last stay within the chart.
function labelsOf(xs, isScale, place, span, textOf) {
  const room = Math.max(2, Math.floor(span / LABEL_WIDTH));
  const shown = isScale ? (xs[0] === xs[1] ? 1 : room) : Math.min(xs.length, room);
  const letters = Math.floor(span / Math.max(1, shown) / LETTER_WIDTH);
  return Array.from({ length: shown }, (_, number) => {
    const share = shown === 1 ? 0 : number / (shown - 1);
    const at = isScale ? xs[0] + share * (xs[1] - xs[0]) : Math.round(share * (xs.length - 1));
    const left = place(at);
    const anchor = left < LEFT + 20 ? "start" : left > LEFT + span - 20 ? "end" : "middle";
    const text = cut(textOf(isScale ? at : xs[at]), letters);
    return svg("text", { x: left, y: HEIGHT - 6, "text-anchor": anchor }, text);
  });
}

function lineOf({ name, values }, number, { xs, x, y, textOf }) {
  let isOpen = false;
  const steps = values.map((value, at) => {
    const step = value === null ? "" : `${isOpen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    isOpen = value !== null;
    return step;
  });
  const dots = values.length > MOST_DOTS ? [] : values.flatMap((value, at) => (value === null ? []
    : [svg("circle", { cx: x(at), cy: y(value), r: 2.5 }, svg("title", {}, `${textOf(xs[at])}: ${name} ${value}`))]));
  return svg("g", { class: `series-${number % 4}` }, svg("path", { d: steps.join("") }), ...dots);
}

function barsOf({ name, values }, number, { xs, x, y, textOf, width, of }) {
  const bars = values.map((value, at) => {
    const left = x(at) + (number - of / 2) * width;
    const [top, bottom] = [Math.max(0, value), Math.min(0, value)].map(y);
    return svg("rect", { x: left, y: top, width, height: Math.max(0, bottom - top) },
      svg("title", {}, `${textOf(xs[at])}: ${name} ${value ?? ""}`));
  });
  return svg("g", { class: `series-${number % 4}` }, ...bars);
}

// A line without axes for a cell of a table, whose figure stands beside it.
export function sparkline(values) {
  const most = 1.3 * Math.max(1, ...values);
  const points = values.map((value, at) =>
    `${((at / Math.max(1, values.length - 1)) * 78 + 1).toFixed(1)},${(17 - (value / most) * 16).toFixed(1)}`);
  return svg("svg", { viewBox: "0 0 80 18", class: "spark series-0", "aria-hidden": "true" },
    svg("polyline", { points: points.join(" ") }));
}
