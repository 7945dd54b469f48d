// Queues that get the dead letters of others; each leads to its messages, with their reasons.

import { element, link, show, table } from "./elements.js";
import { pagedList } from "./paged_list.js";
import { age } from "./words.js";

function sourcesOf(row) {
  const more = row.source_count - row.sources.length;
  return row.sources.join(", ") + (more ? ` and ${more} more` : "");
}

export function deadLetters(_parts, _user, query) {
  const list = table("Dead letters", [
    { title: "Queue", node: (row) => link(row.name, "queue", row.name) },
    { title: "Messages", isNumber: true, text: (row) => row.depth.toLocaleString() },
    { title: "Oldest", isNumber: true, text: (row) => age(row.oldest_age_s) },
    { title: "Queues that send theirs here", text: (row) => sourcesOf(row) },
  ], (row) => row.name);
  const { look, whole: pages } = pagedList(query, "dead-letters", list.fill);

  show(element("h1", {}, "Dead letters"), list.whole, pages);
  return look;
}
