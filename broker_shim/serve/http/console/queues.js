// The list of queues with depth, rates and age.

import { keep, offsetOf } from "./address.js";
import { sparkline } from "./chart.js";
import { element, link, pager, show, table } from "./elements.js";
import { get } from "./requests.js";
import { sample } from "./samples.js";

const LIMIT = 100;

export function age(seconds) {
  if (!seconds) return "";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 86400 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

const count = (title, field) => ({ title, isNumber: true, text: (row) => row[field].toLocaleString() });

export function queues(_parts, _user, query) {
  let offset = offsetOf(query);
  const filter = element("input", { type: "search", id: "filter", oninput: () => go(0) });
  filter.value = query.get("match") ?? "";
  const rate = (title, field) => ({
    title,
    isNumber: true,
    text: (row) => row.seen.at(-1)[field]?.toFixed(1) ?? "",
  });
  const list = table("Queues", [
    { title: "Queue", node: (row) => link(row.name, "queue", row.name) },
    count("Messages", "depth"),
    { title: "Last minutes", isExtra: true, picture: (row) => sparkline(row.seen.map((each) => each.depth)) },
    count("Acquired", "acquired"),
    rate("In/s", "inRate"),
    rate("Out/s", "outRate"),
    { title: "Oldest", isNumber: true, text: (row) => age(row.oldest_age_s) },
    count("Consumers", "consumers"),
    count("Dead-lettered", "dead_lettered"),
  ], (row) => row.name);
  const pages = pager(LIMIT, go);

  async function look() {
    const page = await get("queues", { match: filter.value, limit: LIMIT, offset });
    list.fill(page.items.map((row) => ({ ...row, seen: sample(row) })));
    pages.at(page, page.items.length);
  }

  async function go(to) {
    offset = Math.max(0, to);
    keep({ match: filter.value, offset });
    await look();
  }

  show(element("h1", {}, "Queues"),
    element("div", { class: "bar" }, element("label", { for: "filter" }, "Name contains"), filter),
    list.whole, pages.whole);
  return look;
}
