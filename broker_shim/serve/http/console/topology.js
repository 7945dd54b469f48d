// Exchanges and the queues that they lead to, drawn: what is bound to what is seen at one look.

import { element, svg } from "./elements.js";

const MOST = 40;
const ROW = 26;
const WIDTH = 900;
const LETTERS = 44;

const cut = (text) => (text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text);

// A name that leads to its page, at a place; `isEnd`: its right side is there.
function node(text, href, x, y, isEnd) {
  return svg("a", { href }, svg("text", { x, y: y + 4, "text-anchor": isEnd ? "end" : "start" }, svg("title", {}, text), cut(text)));
}

// The picture of some bindings, of which `total` are there; nothing where none is.
export function topology(bindings, total) {
  const shown = bindings.slice(0, MOST);
  if (!shown.length) return [];
  const [exchanges, queues] = ["exchange", "queue"].map((side) => [...new Set(shown.map((binding) => binding[side]))]);
  const height = ROW * Math.max(exchanges.length, queues.length) + 4;
  const y = (names, name) => ((names.indexOf(name) + 0.5) * height) / names.length;
  const [left, right] = [WIDTH * 0.3, WIDTH * 0.6];
  const middle = (left + right) / 2;
  const drawn = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "topology", role: "group", "aria-labelledby": "topology" },
    svg("title", { id: "topology" }, "Exchanges and the queues bound to them"),
    ...shown.map(({ exchange, queue, key }) => {
      const [from, to] = [y(exchanges, exchange), y(queues, queue)];
      return svg("path", { d: `M${left + 8} ${from}C${middle} ${from} ${middle} ${to} ${right - 8} ${to}` },
        svg("title", {}, `${exchange} ${key} → ${queue}`));
    }),
    ...exchanges.map((name) => node(name, `#/exchanges?exchange=${encodeURIComponent(name)}`, left, y(exchanges, name), true)),
    ...queues.map((name) => node(name, `#/queue/${encodeURIComponent(name)}`, right, y(queues, name), false)));
  const more = total > shown.length ? [element("p", { class: "soft" }, `${shown.length} of ${total} bindings are drawn`)] : [];
  return [drawn, ...more];
}
