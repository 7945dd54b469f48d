// Streams of Spark: what takes from queues and writes to them, and what nobody here can know.

import { element, link, show, table } from "./elements.js";
import { get } from "./requests.js";
import { when, zone } from "./times.js";

const known = (time) => (time ? when(time).slice(0, 19) : "");

export function streams(_parts, user) {
  const list = table("Streams", [
    { title: "Member", text: (row) => row.member },
    { title: "Kind", text: (row) => (row.kind === "query" ? "takes messages" : "sink: sends") },
    { title: `Connected (${zone()})`, isExtra: true, text: (row) => known(row.since) },
    { title: "Queue", node: (row) => (row.queue ? link(row.queue, "queue", row.queue) : "") },
    { title: "Ticket", isNumber: true, text: (row) => String(row.ticket ?? "") },
    { title: "Holds", isNumber: true, text: (row) => row.messages.toLocaleString() },
    { title: `Oldest came (${zone()})`, isExtra: true, text: (row) => known(row.oldest_at) },
  ], (row) => `${row.member} ${row.ticket}`);
  const note = element("p", { class: "soft" });

  async function look() {
    if (!user.has_history) {
      note.textContent = "This broker has no root, and streams read one.";
      return;
    }
    const it = await get("streams");
    list.fill(it.items);
    const cut = it.left_out ? `${it.left_out.toLocaleString()} more rows are left out: these are the newest. ` : "";
    const readers = it.event_streams === 1 ? "1 reader" : `${it.event_streams} readers`;
    note.textContent = `${cut}GET /api/v1/events has ${readers} here. Streams of events in Spark and`
      + " SQL read files, so no broker knows of them: their offsets are in their checkpoints, and nothing is kept for"
      + ` them. History begins at position ${it.history_begins.toLocaleString()}: a stream that is behind it is refused.`;
  }

  look.pauseMs = 10000;  // it reads tables, for which the store commits what it has
  show(element("h1", {}, "Streams"), list.whole, note);
  return look;
}
