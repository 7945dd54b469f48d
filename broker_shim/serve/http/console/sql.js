// SQL over the views: a statement, its rows as a table, and a chart of them.

import { chart } from "./chart.js";
import { complain, element, pager, say, show, table } from "./elements.js";
import { post } from "./requests.js";
import { timeTextOf } from "./times.js";

const LIMIT = 1000;
const PAGE = 50;
const MOST_IN_CHART = 200;
const MOST_BARS = 40;
const MOST_SERIES = 4;
const EXAMPLES = {
  "Depth of each queue": "SELECT queue, depth, acquired\nFROM queues\nORDER BY depth DESC\nLIMIT 20",
  "Waiting messages by subject":
    "SELECT subject, count(*) AS messages\nFROM queue_messages\nGROUP BY ALL\nORDER BY messages DESC",
  "Events by the minute": "SELECT date_trunc('minute', \"at\") AS minute,\n"
    + "  count(*) FILTER (kind = 'enqueued') AS enqueued,\n"
    + "  count(*) FILTER (kind = 'dequeued') AS dequeued\nFROM message_history\nGROUP BY ALL\nORDER BY minute",
  "How messages ended":
    "SELECT queue, outcome, count(*) AS messages\nFROM messages\nGROUP BY ALL\nORDER BY ALL",
};
const [FIRST] = Object.values(EXAMPLES);

let kept = FIRST;  // what was typed stays while other views are looked at

const isNumber = ({ type }) => /^(u?int|float|double|halffloat|decimal)/.test(type);
const isTime = ({ type }) => /^(timestamp|date)/.test(type);
const text = (value) => (value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));

export function sql(_parts, user) {
  const heading = element("h1", {}, "SQL");
  if (!user.mayOperate || !user.has_history) {
    const why = user.has_history ? "SQL needs the role operator." : "This broker has no root, so no tables to ask.";
    show(heading, element("p", {}, why));
    return null;
  }
  const statement = element("textarea",
    { id: "statement", rows: 6, spellcheck: "false", autocomplete: "off", "aria-describedby": "hint", onkeydown: typed });
  statement.value = kept;
  const run = element("button", { type: "button", onclick: ask }, "Run");
  const form = select("form", "Chart", ["none", "bars", "lines"], () => draw());
  const example = select("example", "Example", ["…", ...Object.keys(EXAMPLES)], () => {
    if (example.chosen() in EXAMPLES) statement.value = EXAMPLES[example.chosen()];
  });
  const picture = element("div");
  const rows = element("div");
  let found = null;

  function typed(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    ask();
  }

  async function ask() {
    if (run.disabled) return;
    kept = statement.value;
    run.disabled = true;
    complain(null);
    say("running…");
    const began = performance.now();
    try {
      found = await post("sql", { statement: kept, limit: LIMIT });
      const more = found.is_cut ? `the first ${found.rows.length} rows, there are more;` : `${found.rows.length} rows;`;
      say(`${more} ${((performance.now() - began) / 1000).toFixed(1)} s`);
      form.choose(fitting(found));
      draw();
      rows.replaceChildren(...resultOf(found));
    } catch (error) {
      say("");
      complain(error);
    }
    run.disabled = false;
  }

  function draw() {
    const shown = found && chartOf(found, form.chosen());
    picture.replaceChildren(...(shown ? [shown] : []));
  }

  show(heading,
    element("label", { for: "statement" }, "One SELECT over the views, in DuckDB's SQL"), statement,
    element("div", { class: "bar" }, run, element("span", { id: "hint", class: "soft" }, "Ctrl+Enter runs it"),
      ...example.whole, ...form.whole),
    picture, rows);
  return null;
}

function select(id, label, choices, onchange) {
  const made = element("select", { id, onchange }, ...choices.map((each) => element("option", { value: each }, each)));
  return {
    whole: [element("label", { for: id }, label), made],
    chosen: () => made.value,
    choose: (value) => { made.value = value; },
  };
}

// Lines over times and numbers, bars over names; nothing where no column after the first is a number.
function fitting({ columns, rows }) {
  if (rows.length < 2 || !columns.slice(1).some(isNumber)) return "none";
  return isTime(columns[0]) || isNumber(columns[0]) ? "lines" : "bars";
}

function chartOf({ columns, rows }, form) {
  const [first, ...others] = columns;
  const drawn = others.filter(isNumber).slice(0, MOST_SERIES);
  if (form === "none" || !drawn.length || !rows.length) return null;
  const isBars = form === "bars";
  const isScale = !isBars && (isTime(first) || isNumber(first));
  const shown = rows.slice(0, isBars ? MOST_BARS : MOST_IN_CHART);
  const part = shown.length < rows.length ? ` (the first ${shown.length} rows)` : "";
  let placed = shown.map((row) => ({ row, x: isTime(first) ? moment(row[first.name], first) : value(row[first.name]) }));
  if (isScale) placed = placed.filter(({ x }) => x !== null).sort((one, other) => one.x - other.x);
  if (!placed.length) return null;
  return chart(`${drawn.map((each) => each.name).join(", ")} by ${first.name}${part}`, {
    xs: placed.map(({ row, x }) => (isScale ? x : text(row[first.name]))),
    series: drawn.map(({ name }) => ({ name, values: placed.map(({ row }) => value(row[name])) })),
    textOf: isScale && isTime(first) ? timeTextOf(placed[0].x, placed.at(-1).x) : String,
    isBars,
  });
}

// A value as a number of JavaScript's; null: it is none.
const value = (told) => (told === null || !Number.isFinite(Number(told)) ? null : Number(told));

// A time, or a day, in UTC ms; null: none that this browser has.
const moment = (told, { type }) =>
  value(told === null ? null : Date.parse(/^timestamp\[\w+\]$/.test(type) ? `${told}Z` : told));

function resultOf({ columns, rows }) {
  const numbered = rows.map((row, index) => ({ row, index }));
  const list = table("Result", columns.map((each) =>
    ({ title: each.name, isNumber: isNumber(each), text: ({ row }) => text(row[each.name]) })), ({ index }) => index);
  const pages = pager(PAGE, go);
  function go(to) {
    const offset = Math.max(0, to);
    const page = numbered.slice(offset, offset + PAGE);
    list.fill(page);
    pages.at({ offset, total: rows.length }, page.length);
  }
  go(0);
  return rows.length > PAGE ? [list.whole, pages.whole] : [list.whole];
}
