// Durable subscriptions: who has each, what it subscribes to, and what waits for it.

import { linesOf } from "./forms.js";
import { element, link, show, table } from "./elements.js";
import { pagedList } from "./paged_list.js";
import { age } from "./words.js";

function sourceOf({ exchange, key, arguments: terms }) {
  const more = linesOf(terms).replaceAll("\n", ", ");
  return [`${exchange} ${key}`.trim(), more && `(${more})`].filter(Boolean).join(" ");
}

export function subscriptions(_parts, _user, query) {
  const list = table("Subscriptions", [
    { title: "Queue", node: (row) => link(row.queue, "queue", row.queue) },
    { title: "Subscriber", text: (row) => row.subscriber ?? "none is known" },
    { title: "State", isShort: true, tone: (row) => (row.attached ? "good" : "care"), text: (row) => (row.attached ? "attached" : "away") },
    { title: "Subscribes to", text: (row) => row.bindings.map(sourceOf).join("; ") },
    { title: "Messages", isNumber: true, text: (row) => row.depth.toLocaleString() },
    { title: "Oldest", isNumber: true, text: (row) => age(row.oldest_age_s) },
  ], (row) => row.queue);
  const { look, whole: pages } = pagedList(query, "subscriptions", list.fill);

  look.pauseMs = 5000;
  show(element("h1", {}, "Subscriptions"), list.whole, pages);
  return look;
}
