// The history of a message as a line of time: each event with the time since the one before.

import { element } from "./elements.js";
import { get } from "./requests.js";
import { when } from "./times.js";
import { age, holder } from "./words.js";

const LIMIT = 200;

function words(event) {
  const detail = event.detail ?? {};
  const how = event.kind === "dequeued" ? (detail.outcome ?? "accepted") : event.kind;
  const more = [
    event.queue && `on ${event.queue}`, detail.to && `to ${detail.to}`,
    event.holder && `by ${holder(event.holder)}`, event.delivery_count && `${event.delivery_count} failed`,
    event.traceparent && `trace ${event.traceparent}`,
  ];
  return [how, ...more.filter(Boolean)].join(" ");
}

// An ordered list of what happened to a message; a sentence where nothing keeps its history.
export async function historyOf(id) {
  let events;
  try {
    events = (await get(`messages/${id}/history`, { limit: LIMIT })).items;
  } catch (error) {
    return element("p", {}, `No history: ${error.message}`);
  }
  let before = null;
  return element("ol", { class: "history", "aria-label": `History of message ${id}` }, ...events.map((event) => {
    const at = Date.parse(event.at);
    const since = before === null ? "" : ` (+${age((at - before) / 1000) || "0 ms"})`;
    before = at;
    return element("li", {}, element("time", { datetime: event.at }, when(event.at) + since), ` ${words(event)}`);
  }));
}
