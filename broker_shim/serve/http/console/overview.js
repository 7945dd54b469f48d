// How the broker is, on one screen: what is wrong first, then figures that lead to their pages.

import { element, show } from "./elements.js";
import { get } from "./requests.js";
import { when, zone } from "./times.js";
import { age, size } from "./words.js";

const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

const milliseconds = (value) => (value === null ? "none" : `≤ ${value} ms`);

// Each figure: its name, its value, what is beside it, and the page that it leads to.
function figuresOf(it) {
  const lags = Object.entries(it.replica_lags);
  const disks = it.disks.map((disk) => ({
    name: "Disk free", value: size(disk.free_bytes), more: `of ${size(disk.total_bytes)}; floor ${size(disk.least_free_bytes)}`,
    view: "upkeep",
  }));
  return [
    { name: "In", value: `${short.format(it.in_rate)}/s`, more: "last minute", view: "queues?sort=-arrived" },
    { name: "Out", value: `${short.format(it.out_rate)}/s`, more: "accepted, last minute", view: "queues?sort=-removed" },
    { name: "Waiting", value: short.format(it.messages - it.acquired), more: `${size(it.bytes)} on ${it.queues} queues`, view: "queues?sort=-depth" },
    { name: "Held", value: short.format(it.acquired), more: "by consumers", view: "queues?sort=-acquired" },
    { name: "Oldest", value: age(it.oldest_age_s) || "none", more: it.oldest_queue ?? "",
      view: it.oldest_queue === null ? "queues" : `queue/${encodeURIComponent(it.oldest_queue)}` },
    { name: "Dead letters", value: short.format(it.dead_lettered_last_hour), more: "last hour", view: "dead-letters" },
    { name: "Connections", value: short.format(it.connections), more: "open now", view: "connections" },
    { name: "Memory", value: size(it.memory_bytes), more: "of the process", view: "upkeep" },
    ...disks,
    { name: "Log sync", value: milliseconds(it.sync_p50_ms), more: `99 of 100 ${milliseconds(it.sync_p99_ms)}`, view: "upkeep" },
    { name: "On the way to Delta", value: it.uncommitted_bytes === null ? "none" : size(it.uncommitted_bytes), more: "", view: "upkeep" },
    { name: "Last compaction", value: it.last_compaction_at ? `${age((Date.now() - Date.parse(it.last_compaction_at)) / 1000)} ago` : "never", more: "", view: "upkeep" },
    ...lags.map(([folder, lag]) => (
      { name: "Replica", value: lag === null ? "unreadable" : `${short.format(lag)} behind`, more: folder, view: "upkeep" })),
    ...(it.standby ? [standbyOf(it.standby)] : []),
    ...(it.last_switch ? [switchOf(it.last_switch)] : []),
    { name: "Up", value: age(it.uptime_s) || "0 s", more: `${it.version}, since ${when(it.started_at).slice(0, 16)} (${zone()})`, view: "upkeep" },
  ];
}

// The standby of a pair: in step, behind by how much, or none that has what was confirmed.
function standbyOf({ in_step: isInStep, alone, lag_records: records, lag_bytes: bytes, lag_seconds: seconds }) {
  const lag = `${short.format(records)} records, ${size(bytes)}, ${age(seconds) || "0 s"} behind`;
  const more = isInStep ? "it has all that was confirmed" : alone ? `alone: a lost disk loses data; ${lag}` : lag;
  return { name: "Standby", value: isInStep ? "in step" : "not in step", more, view: "upkeep", tone: isInStep ? "good" : "bad" };
}

// When this machine took over, why, and how long it took until it served.
function switchOf({ at, why, served_after_s: seconds }) {
  const length = seconds === null ? "" : `; served ${seconds.toFixed(1)} s later`;
  return { name: "Last switch", value: `${age((Date.now() - Date.parse(at)) / 1000)} ago`, more: `${when(at).slice(0, 19)} (${zone()}): ${why}${length}`, view: "upkeep" };
}

function tile({ name, value, more, view, tone = "" }) {
  return element("li", {}, element("a", { href: `#/${view}` },
    element("span", { class: "soft" }, name), element("strong", { "data-tone": tone || null }, value), element("span", { class: "soft" }, more)));
}

export function overview() {
  const alarms = element("ul", { class: "alarms", "aria-label": "Alarms" });
  const tiles = element("ul", { class: "tiles", "aria-label": "Figures" });
  let shown = "";

  async function look() {
    const it = await get("overview");
    const wrong = JSON.stringify(it.alarms);
    if (wrong !== shown) {
      shown = wrong;
      const rows = it.alarms.map(({ severity, text }) => element("li", { class: severity },
        element("strong", {}, severity === "fail" ? "Failed: " : "Warning: "), text));
      alarms.replaceChildren(...(rows.length ? rows : [element("li", { class: "well" }, "No alarms.")]));
    }
    const links = figuresOf(it).map(tile);
    links.forEach((made, at) => {  // what has the focus keeps it while figures change
      const there = tiles.children[at];
      if (!there) tiles.append(made);
      else if (!there.isEqualNode(made)) {
        there.firstChild.setAttribute("href", made.firstChild.getAttribute("href"));
        there.firstChild.replaceChildren(...made.firstChild.childNodes);
      }
    });
    while (tiles.children.length > links.length) tiles.lastChild.remove();
  }

  look.pauseMs = 5000;
  show(element("h1", {}, "Overview"), alarms, tiles);
  return look;
}
