// One queue: its figures and arguments, its messages with their bodies, and orders for operators.

import { keep, offsetOf } from "./address.js";
import { button, element, linkAsking, order, pager, say, show, table, terms } from "./elements.js";
import { died, messagePanel } from "./message.js";
import { queueOrders } from "./queue_orders.js";
import { get, queuePath } from "./requests.js";
import { timeCharts } from "./time_charts.js";
import { when, zone } from "./times.js";
import { age } from "./words.js";

const LIMIT = 50;
const MOST_LOOKS = 15;  // the figures do not show that one consumer gave back what another took at once

// Figures that change with the messages of a page: it is asked for again when one of them did.
const signsOf = (told, offset) => JSON.stringify(
  [offset, told.depth, told.acquired, told.delayed, told.arrived, told.removed, told.redelivered]);

// An argument that counts, and where it is from unless the queue says it itself.
const sourced = (it) => (it.from === "queue" ? String(it.value) : `${it.value} (${it.from})`);

export function queue(parts, user, query) {
  const name = parts.join("/");
  let offset = offsetOf(query);
  let [signs, looks] = ["", 0];
  let filter = "";  // the list shows what fits it, in the place of a page
  const figures = element("div");
  const charts = timeCharts(name, query, kept);
  const choiceOfAll = element("input", { type: "checkbox", "aria-label": "Choose all messages of this page", onchange: () => chooseAll() });
  const list = table("Messages", [
    ...(user.mayOperate ? [{
      title: "Choose", isShort: true, head: element("label", {}, choiceOfAll, " All"),
      node: (row) => element("input", { type: "checkbox", class: "choice", value: row.id, "aria-label": `Choose message ${row.id}` }),
    }] : []),
    {
      title: "Id", isShort: true,
      node: (row) => button(String(row.id), () => panel.open(row.id), `Show message ${row.id}`),
    },
    { title: `Came (${zone()})`, text: (row) => when(row.enqueued_at) },
    { title: "State", isShort: true, text: (row) => (row.acquired_by ? "acquired" : "waits"), tone: (row) => (row.acquired_by ? "care" : "") },
    { title: "Failures", isNumber: true, tone: (row) => (row.delivery_count ? "bad" : ""), text: (row) => String(row.delivery_count) },
    { title: "Bytes", isNumber: true, isExtra: true, text: (row) => row.bytes.toLocaleString() },
    { title: "Subject", text: (row) => row.subject ?? "" },
    { title: "Died", text: (row) => died(row.death) },
  ], (row) => row.id);
  const pages = pager(LIMIT, go);
  const panel = messagePanel(name, user, { list, pages, kept, look: lookAfterOrder });
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
    choiceOfAll.checked &&= [...list.whole.querySelectorAll(".choice")].every((box) => box.checked);
    charts.look();  // it takes longer where history is asked, and tells by itself if that fails
    if (filter) return;
    const now = signsOf(told, offset);
    if (now === signs && ++looks < MOST_LOOKS) return;
    const page = await get(queuePath(name, "/messages"), { limit: LIMIT, offset });
    fill(page);
    [signs, looks] = [now, 0];
  }

  async function go(to) {
    offset = Math.max(0, to);
    kept();
    await look();
  }

  function kept() {
    keep({ offset, find: filter, message: panel.opened(), ...charts.values() });
  }

  // What is typed is a message's id, a part of subjects, or a property as name=value. A message of an
  // id is opened, wherever in the queue it is; of others the list shows those that fit.
  const sought = element("input", { type: "search", id: "sought", onkeydown: typed, onsearch: () => sought.value || seek("") });
  sought.value = query.get("find") ?? "";
  const search = [element("label", { for: "sought" }, "Find by id, subject, or property=value"), sought];

  function typed(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    seek(sought.value.trim());
  }

  const seek = order(async (words) => {
    const began = performance.now();
    if (/^\d+$/.test(words)) {
      await panel.open(words);
      if (panel.opened() === words) say(`found in ${((performance.now() - began) / 1000).toFixed(2)} s`);
      return;
    }
    [filter, signs] = [words, ""];
    kept();
    say(filter ? "searching…" : "");
    try {
      if (filter) say(await filtered());
      else await look();
    } catch (error) {
      say("");
      throw error;
    }
  });

  // Show the messages that fit; how many, in which time, and what of them is left out.
  async function filtered() {
    const asked = filter;
    const answer = await get(queuePath(name, "/search"), { [asked.includes("=") ? "property" : "subject"]: asked });
    if (asked === filter) fill({ offset: 0, total: answer.items.length, items: answer.items });
    const missing = answer.left_out.map((part) => `; left out: ${part}`).join("");
    return `${answer.items.length} found in ${(answer.elapsed_ms / 1000).toFixed(2)} s${missing}`;
  }

  function fill(page) {
    list.fill(page.items);
    panel.mark();
    pages.at(page, page.items.length);
  }

  async function lookAfterOrder() {
    await look();
    if (filter) await filtered();
  }

  function chooseAll() {
    for (const box of list.whole.querySelectorAll(".choice")) box.checked = choiceOfAll.checked;
  }

  const orders = queueOrders(name, user, list, lookAfterOrder);
  show(element("h1", {}, name), element("div", { class: "overview" }, figures, charts.whole), ...(user.mayOperate ? [orders] : []), element("div", { class: "bar" }, ...search), list.whole, pages.whole, consuming, panel.whole);
  if (sought.value) seek(sought.value);
  if (query.get("message")) panel.open(query.get("message"));
  return look;
}
