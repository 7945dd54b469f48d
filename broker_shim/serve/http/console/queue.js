// One queue: its figures and arguments, its messages with their bodies, and orders for operators.

import { chart } from "./chart.js";
import { complain, confirmed, element, pager, say, show, table, terms, utc } from "./elements.js";
import { historyOf } from "./history.js";
import { age } from "./queues.js";
import { get, post, queuePath } from "./requests.js";
import { sample } from "./samples.js";

const LIMIT = 50;

const died = (death) =>
  death.queue ? [death.reason, "on", death.queue, death.condition, death.description].filter(Boolean).join(" ") : "";

// An argument that counts, and where it is from unless the queue says it itself.
const sourced = (it) => (it.from === "queue" ? String(it.value) : `${it.value} (${it.from})`);

// An annotation; the times among them are milliseconds since 1970.
export function annotation([name, value]) {
  const at = new Date(Number(value));
  if (!["x-opt-death-time", "x-opt-death-first-time", "x-opt-delivery-time"].includes(name) || Number.isNaN(at.getTime())) return [name, value];
  return [`${name} (UTC)`, utc(at.toISOString().replace("Z", "+00:00"))];
}

const clock = (at) => new Date(at).toISOString().slice(11, 19);

// Depth and rates of the last minutes; none before there are two looks.
function chartsOf(seen) {
  if (seen.length < 2) return [];
  const shared = { xs: seen.map((each) => each.at), textOf: clock, width: 420 };
  const values = (field) => seen.map((each) => each[field]);
  return [
    chart("Messages, by time (UTC)", { ...shared, series: [{ name: "messages", values: values("depth") }] }),
    chart("Messages a second", {
      ...shared,
      series: [{ name: "in", values: values("inRate") }, { name: "out", values: values("outRate") }],
    }),
  ];
}

export function queue(parts, user) {
  const name = parts.join("/");
  let offset = 0;
  const figures = element("div");
  const charts = element("div", { class: "charts" });
  const details = element("section", { "aria-live": "polite" });
  const list = table("Messages", [
    {
      title: "Id",
      node: (row) => element("button",
        { type: "button", "aria-label": `Show message ${row.id}`, onclick: () => open(row.id) }, String(row.id)),
    },
    { title: "Came (UTC)", text: (row) => utc(row.enqueued_at) },
    { title: "State", text: (row) => (row.held_by ? "held" : "waits") },
    { title: "Failures", isNumber: true, text: (row) => String(row.delivery_count) },
    { title: "Bytes", isNumber: true, text: (row) => row.bytes.toLocaleString() },
    { title: "Subject", text: (row) => row.subject ?? "" },
    { title: "Died", text: (row) => died(row.death) },
  ], (row) => row.id);
  const pages = pager(LIMIT, go);

  async function look() {
    const told = await get(queuePath(name));
    figures.replaceChildren(terms([
      ["messages", told.depth], ["held", told.held], ["delayed", told.delayed], ["bytes", told.bytes],
      ["oldest", age(told.oldest_age_s)], ["consumers", told.consumers], ["durability", told.durability],
      ...Object.entries(told.effective).map(([argument, it]) => [argument, sourced(it)]),
      ...told.bindings.map((each) => ["binding", `${each.exchange} ${each.key}`]),
    ]));
    charts.replaceChildren(...chartsOf(sample(told)));
    const page = await get(queuePath(name, "/messages"), { limit: LIMIT, offset });
    list.fill(page.items);
    pages.at(page, page.items.length);
  }

  async function go(to) {
    offset = Math.max(0, to);
    await look();
  }

  async function open(id) {
    try {
      const it = await get(queuePath(name, `/messages/${id}`));
      const body = it.body_form === "omitted" ? "too large to be shown: sparkstore export has it" : it.body;
      details.replaceChildren(
        element("h2", {}, `Message ${it.id}`),
        terms([
          ["came (UTC)", utc(it.enqueued_at)], ["held by", it.held_by], ["died", died(it.death)], ["subject", it.subject],
          ["content type", it.content_type], ["user", it.user_id], ["message id", it.amqp_message_id],
          ["correlation id", it.correlation_id], ["expires (UTC)", it.expires_at && utc(it.expires_at)], ["durable", it.durable],
          ...Object.entries(it.properties), ...Object.entries(it.annotations).map(annotation),
        ]),
        element("h2", {}, `Body (${it.body_form}, ${it.body_bytes} bytes)`),
        element("pre", { tabindex: "0" }, body),
        ...(user.has_history ? [element("h2", {}, "History"), await historyOf(id)] : []));
    } catch (error) {
      complain(error);
    }
  }

  const stay = (told) => (told.held ? ` ${told.held} that consumers hold stay.` : "");

  async function purge() {
    try {
      const told = await post(queuePath(name, "/purge"), { dry_run: true });
      const text = `${told.would} messages are taken off ${name}.${stay(told)}`;
      if (!(await confirmed("Purge this queue?", `Purge ${told.would} messages`, element("p", {}, text)))) return;
      const done = await post(queuePath(name, "/purge"), {});
      say(`${done.done} messages were purged; sparkstore undo ROOT ${done.operation} takes that back`);
      await look();
    } catch (error) {
      complain(error);
    }
  }

  async function move() {
    const target = element("input", { id: "target", required: true, autofocus: true });
    const label = element("label", { for: "target" }, "To the queue ");
    try {
      const asked = element("p", {}, label, target);
      if (!(await confirmed("Move all messages of this queue", "Count them", asked))) return;
      const to = target.value;
      const told = await post(queuePath(name, "/move"), { to, dry_run: true });
      const text = `${told.would} messages go from ${name} to ${to}.${stay(told)}`;
      if (!(await confirmed("Move these messages?", `Move ${told.would} messages`, element("p", {}, text)))) return;
      const done = await post(queuePath(name, "/move"), { to });
      say(`${done.done} messages were moved; sparkstore undo ROOT ${done.operation} takes that back`);
      await look();
    } catch (error) {
      complain(error);
    }
  }

  async function redrive() {
    try {
      const told = await post(queuePath(name, "/redrive"), { dry_run: true });
      const going = Object.entries(told.to).map(([queue, count]) => `${count} to ${queue}`).join(", ");
      const gone = Object.keys(told.origin_gone).join(", ");
      const text = `Dead letters go back: ${going || "none"}.${gone ? ` Gone: ${gone}.` : ""}`;
      if (!(await confirmed("Redrive this queue?", "Send them back", element("p", {}, text)))) return;
      const done = await post(queuePath(name, "/redrive"), {});
      say(`${done.done} messages went back; sparkstore undo ROOT ${done.operation} takes that back`);
      await look();
    } catch (error) {
      complain(error);
    }
  }

  const orders = element("div", { class: "bar" },
    element("button", { type: "button", onclick: purge }, "Purge…"),
    element("button", { type: "button", onclick: move }, "Move…"),
    element("button", { type: "button", onclick: redrive }, "Redrive…"));
  show(element("h1", {}, name), element("div", { class: "overview" }, figures, charts), ...(user.mayOperate ? [orders] : []), list.whole, pages.whole, details);
  return look;
}
