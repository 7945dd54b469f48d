// Queues that get the dead letters of others; each leads to its messages, with their reasons.

import { keep, offsetOf } from "./address.js";
import { element, link, pager, show, table } from "./elements.js";
import { get } from "./requests.js";
import { age } from "./words.js";

const LIMIT = 100;

function sourcesOf(row) {
  const more = row.source_count - row.sources.length;
  return row.sources.join(", ") + (more ? ` and ${more} more` : "");
}

export function deadLetters(_parts, _user, query) {
  let offset = offsetOf(query);
  const list = table("Dead letters", [
    { title: "Queue", node: (row) => link(row.name, "queue", row.name) },
    { title: "Messages", isNumber: true, text: (row) => row.depth.toLocaleString() },
    { title: "Oldest", isNumber: true, text: (row) => age(row.oldest_age_s) },
    { title: "Queues that send theirs here", text: (row) => sourcesOf(row) },
  ], (row) => row.name);
  const pages = pager(LIMIT, go);

  async function look() {
    const page = await get("dead-letters", { limit: LIMIT, offset });
    list.fill(page.items);
    pages.at(page, page.items.length);
  }

  async function go(to) {
    offset = Math.max(0, to);
    keep({ offset });
    await look();
  }

  show(element("h1", {}, "Dead letters"), list.whole, pages.whole);
  return look;
}
