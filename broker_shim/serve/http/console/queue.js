// One queue: its figures and arguments, its messages with their bodies, and orders for operators.

import { keep, offsetOf } from "./address.js";
import { element, linkAsking, order, pager, say, show, table, terms } from "./elements.js";
import { historyOf } from "./history.js";
import { queueOrders, repairButton } from "./queue_orders.js";
import { get, queuePath } from "./requests.js";
import { timeCharts } from "./time_charts.js";
import { when, zone } from "./times.js";
import { age, holder } from "./words.js";

const LIMIT = 50;
const MOST_LOOKS = 15;  // the figures do not show that one consumer gave back what another took at once

// Figures that change with the messages of a page: it is asked for again when one of them did.
const signsOf = (told, offset) => JSON.stringify(
  [offset, told.depth, told.acquired, told.delayed, told.arrived, told.removed, told.redelivered]);

// Why a message died, and where: rejected on orders: shop:price (price is negative)
function died(death) {
  if (!death.queue) return "";
  const why = death.condition ?? death.description;
  const more = death.condition && death.description ? ` (${death.description})` : "";
  return `${death.reason} on ${death.queue}${why ? `: ${why}` : ""}${more}`;
}

// A body as it is read: a value of text is that text, not the JSON of it.
function readable(message) {
  if (message.body_form === "omitted") return "too large to be shown: sparkstore export has it";
  if (message.body_form !== "json" || !message.body.startsWith('"')) return message.body;
  return JSON.parse(message.body);
}

// An argument that counts, and where it is from unless the queue says it itself.
const sourced = (it) => (it.from === "queue" ? String(it.value) : `${it.value} (${it.from})`);

// An annotation; the times among them are milliseconds since 1970.
export function annotation([name, value]) {
  const at = new Date(Number(value));
  if (!["x-opt-death-time", "x-opt-death-first-time", "x-opt-delivery-time"].includes(name) || Number.isNaN(at.getTime())) return [name, value];
  return [`${name} (${zone()})`, when(at.toISOString())];
}

export function queue(parts, user, query) {
  const name = parts.join("/");
  let offset = offsetOf(query);
  let opened = "";
  let [signs, looks] = ["", 0];
  const figures = element("div");
  const charts = timeCharts(name, query, kept);
  const details = element("aside", { class: "panel", hidden: true, onkeydown: typed });
  const choiceOfAll = element("input", { type: "checkbox", "aria-label": "Choose all messages of this page", onchange: () => chooseAll() });
  const list = table("Messages", [
    ...(user.mayOperate ? [{
      title: "Choose", isShort: true, head: choiceOfAll,
      node: (row) => element("input", { type: "checkbox", class: "choice", value: row.id, "aria-label": `Choose message ${row.id}` }),
    }] : []),
    {
      title: "Id", isShort: true,
      node: (row) => element("button",
        { type: "button", "aria-label": `Show message ${row.id}`, onclick: () => open(row.id) }, String(row.id)),
    },
    { title: `Came (${zone()})`, text: (row) => when(row.enqueued_at) },
    { title: "State", isShort: true, text: (row) => (row.acquired_by ? "acquired" : "waits"), tone: (row) => (row.acquired_by ? "care" : "") },
    { title: "Failures", isNumber: true, tone: (row) => (row.delivery_count ? "bad" : ""), text: (row) => String(row.delivery_count) },
    { title: "Bytes", isNumber: true, isExtra: true, text: (row) => row.bytes.toLocaleString() },
    { title: "Subject", text: (row) => row.subject ?? "" },
    { title: "Died", text: (row) => died(row.death) },
  ], (row) => row.id);
  const pages = pager(LIMIT, go);
  const consumers = table("Consumers", [
    { title: "Tag", text: (row) => row.tag }, { title: "Container", text: (row) => row.container ?? "" },
    { title: "Holds", isNumber: true, text: (row) => row.acquired.toLocaleString() },
    { title: "Takes more", isNumber: true, text: (row) => row.credit.toLocaleString() },
  ], (row) => row.holder);
  const consuming = element("section", { hidden: true }, element("h2", {}, "Consumers"), consumers.whole);

  async function look() {
    const told = await get(queuePath(name));
    figures.replaceChildren(terms([
      ["messages", told.depth], ["acquired", told.acquired], ["delayed", told.delayed], ["bytes", told.bytes],
      ["oldest", age(told.oldest_age_s)], ["consumers", told.consumers], ["durability", told.durability],
      ...Object.entries(told.effective).map(([argument, it]) => [argument, sourced(it)]),
      ...told.bindings.map((each) => ["binding", linkAsking(`${each.exchange} ${each.key}`, { exchange: each.exchange }, "exchanges")]),
    ]));
    consuming.hidden = !told.consumers;
    if (told.consumers) consumers.fill((await get(queuePath(name, "/consumers"))).items);
    charts.look();  // it takes longer where history is asked, and tells by itself if that fails
    const now = signsOf(told, offset);
    if (now === signs && ++looks < MOST_LOOKS) return;
    const page = await get(queuePath(name, "/messages"), { limit: LIMIT, offset });
    list.fill(page.items);
    marked();
    pages.at(page, page.items.length);
    [signs, looks] = [now, 0];
  }

  async function go(to) {
    offset = Math.max(0, to);
    kept();
    await look();
  }

  function kept() {
    keep({ offset, message: opened, ...charts.values() });
  }

  const open = order(async (id) => {
    const it = await get(queuePath(name, `/messages/${encodeURIComponent(id)}`));
    opened = String(id);
    kept();
    details.setAttribute("aria-label", `Message ${it.id}`);
    const heading = element("h2", { tabindex: "-1" }, `Message ${it.id}`);
    details.replaceChildren(
      element("div", { class: "bar" },
        element("button", { type: "button", onclick: () => step(-1) }, "Previous (k)"),
        element("button", { type: "button", onclick: () => step(1) }, "Next (j)"),
        element("button", { type: "button", onclick: close }, "Close (Esc)")),
      heading,
      terms([
        [`came (${zone()})`, when(it.enqueued_at)], ["acquired by", it.acquired_by && holder(it.acquired_by)], ["died", died(it.death)], ["subject", it.subject],
        ["content type", it.content_type], ["user", it.user_id], ["message id", it.amqp_message_id],
        ["correlation id", it.correlation_id], [`expires (${zone()})`, it.expires_at && when(it.expires_at)], ["durable", it.durable],
        ...Object.entries(it.properties), ...Object.entries(it.annotations).map(annotation),
      ]),
      element("h2", {}, `Body (${it.body_form}, ${it.body_bytes} bytes)`),
      element("pre", { tabindex: "0" }, readable(it)),
      ...(user.mayOperate && it.body_form !== "omitted" ? [repairButton(name, it, look)] : []),
      ...(user.has_history ? [element("h2", {}, "History"), await historyOf(it.id)] : []));
    details.hidden = false;
    heading.focus();
    marked();
    list.whole.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  });

  // Opens a message by its id, wherever in the queue it is, and says how long that took.
  const wanted = element("input", { type: "search", id: "wanted", inputmode: "numeric", onkeydown: find });
  const search = [element("label", { for: "wanted" }, "Message id"), wanted];

  async function find(event) {
    if (event.key !== "Enter" || !wanted.value.trim()) return;
    event.preventDefault();
    const began = performance.now();
    await open(wanted.value.trim());
    if (opened === wanted.value.trim()) say(`found in ${((performance.now() - began) / 1000).toFixed(2)} s`);
  }

  const rowOf = (id) => document.querySelector(`button[aria-label="Show message ${id}"]`);

  function close() {
    const row = rowOf(opened);
    opened = "";
    kept();
    details.hidden = true;
    marked();
    row?.focus();
  }

  // Mark the row of the message that is shown.
  function marked() {
    for (const line of list.whole.tBodies[0].rows) {
      if (line.contains(rowOf(opened))) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    }
  }

  // Open the message beside the one that is shown, in the order of the list, of another page too.
  async function step(by) {
    const line = rowOf(opened)?.closest("tr");
    if (!line) return;
    let beside = by < 0 ? line.previousElementSibling : line.nextElementSibling;
    if (!beside && await pages.turn(by)) {
      const { rows } = list.whole.tBodies[0];
      beside = rows[by < 0 ? rows.length - 1 : 0];
    }
    beside?.querySelector("button").click();
  }

  function chooseAll() {
    for (const box of list.whole.querySelectorAll(".choice")) box.checked = choiceOfAll.checked;
  }

  function typed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { Escape: close, j: () => step(1), k: () => step(-1) }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  const orders = queueOrders(name, user, list, look);
  show(element("h1", {}, name), element("div", { class: "overview" }, figures, charts.whole), ...(user.mayOperate ? [orders] : []), element("div", { class: "bar" }, ...search), list.whole, pages.whole, consuming, details);
  if (query.get("message")) open(query.get("message"));
  return look;
}
