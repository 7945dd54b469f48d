// Exchanges and bindings; administrators make and delete them, and operators try where a message goes.

import { keep, offsetOf } from "./address.js";
import { asked, carriedOut, linesOf, valuesOf } from "./forms.js";
import { button, confirmed, element, link, order, pager, say, show, table } from "./elements.js";
import { get, post, put, remove } from "./requests.js";
import { topology } from "./topology.js";

const LIMIT = 100;
const TYPES = ["direct", "fanout", "topic", "headers"];
const OWN = /^(amq\.|$)/;

export function wiring(_parts, user, query) {
  let exchange = query.get("exchange") ?? "";
  let [offset, offsetOfBindings] = [offsetOf(query), offsetOf(query, "bindings")];
  const where = element("span");
  const picture = element("div");
  let drawn = "";
  const exchanges = table("Exchanges", [
    { title: "Exchange", node: (row) => button(row.name || "(default)", () => choose(row.name), `Bindings of ${row.name}`) },
    { title: "Type", text: (row) => row.type },
    { title: "Durability", isExtra: true, text: (row) => row.durability },
    { title: "Alternate", isExtra: true, text: (row) => row.alternate_exchange ?? "" },
    ...(user.mayAdminister ? [{
      title: "Order",
      node: (row) => (OWN.test(row.name) ? "" : button("Delete…", () => drop(row), `Delete ${row.name}`)),
    }] : []),
  ], (row) => row.name);
  const bindings = table("Bindings", [
    { title: "Exchange", text: (row) => row.exchange },
    { title: "Key", text: (row) => row.key },
    { title: "Queue", node: (row) => link(row.queue, "queue", row.queue) },
    { title: "Arguments", isExtra: true, text: (row) => linesOf(row.arguments).replaceAll("\n", ", ") },
    ...(user.mayAdminister ? [{
      title: "Order", node: (row) => button("Remove…", () => unbind(row), `Remove the binding of ${row.queue} by ${row.key}`),
    }] : []),
  ], (row) => JSON.stringify([row.exchange, row.key, row.queue]));
  const pages = pager(LIMIT, (to) => go({ exchanges: to }));
  const pagesOfBindings = pager(LIMIT, (to) => go({ bindings: to }));
  const all = button("All bindings", () => choose(""), null, { hidden: true });

  async function look() {
    const page = await get("exchanges", { limit: LIMIT, offset });
    exchanges.fill(page.items);
    pages.at(page, page.items.length);
    const bound = await get("bindings", { limit: LIMIT, offset: offsetOfBindings, ...(exchange ? { exchange } : {}) });
    bindings.fill(bound.items);
    const sign = JSON.stringify(bound);
    if (sign !== drawn) picture.replaceChildren(...topology(bound.items, bound.total));  // else what has the focus would lose it
    drawn = sign;
    pagesOfBindings.at(bound, bound.items.length);
    where.textContent = exchange ? `of the exchange ${exchange}` : "of all exchanges";
    all.hidden = !exchange;
  }

  async function go(to) {
    offset = Math.max(0, to.exchanges ?? offset);
    offsetOfBindings = Math.max(0, to.bindings ?? offsetOfBindings);
    keep({ exchange, offset, bindings: offsetOfBindings });
    await look();
  }

  async function choose(name) {
    exchange = name;
    await go({ bindings: 0 });
  }

  const make = order(async () => {
    const said = await asked("New exchange", "Try it", [
      { name: "name", label: "Name", required: true }, { name: "type", label: "Type", kind: "select", choices: TYPES },
      { name: "lines", label: "Arguments (name = value)", kind: "area" },
    ]);
    if (!said) return;
    const body = { type: said.type, arguments: valuesOf(said.lines) };
    const path = `exchanges/${encodeURIComponent(said.name)}`;
    if (await carriedOut("Create this exchange?", "Create it", (dryRun) => put(path, { ...body, dry_run: dryRun }))) await look();
  });

  const drop = order(async (row) => {
    const said = await asked(`Delete the exchange ${row.name}?`, "Try it", [{ name: "force", label: "With its bindings", kind: "check" }]);
    if (!said) return;
    const send = (dryRun) => remove(`exchanges/${encodeURIComponent(row.name)}`, { force: said.force, dry_run: dryRun });
    if (await carriedOut(`Delete ${row.name}?`, "Delete it", send)) await look();
  });

  const bind = order(async () => {
    const said = await asked("New binding", "Try it", [
      { name: "exchange", label: "Exchange", value: exchange, required: true },
      { name: "queue", label: "Queue", required: true }, { name: "key", label: "Key" },
      { name: "lines", label: "Arguments (name = value)", kind: "area" },
    ]);
    if (!said) return;
    const body = { exchange: said.exchange, queue: said.queue, key: said.key, arguments: valuesOf(said.lines) };
    if (await carriedOut("Add this binding?", "Add it", (dryRun) => post("bindings", { ...body, dry_run: dryRun }))) await look();
  });

  const unbind = order(async ({ exchange: from, queue, key }) => {
    const send = (dryRun) => remove("bindings", { exchange: from, queue, key, dry_run: dryRun });
    if (await carriedOut("Remove this binding?", "Remove it", send)) await look();
  });

  const send = order(async () => {
    const said = await asked("Send a message", "Try it", [
      { name: "exchange", label: "Exchange", value: exchange, required: true }, { name: "key", label: "Routing key" },
      { name: "lines", label: "Properties (name = value)", kind: "area" }, { name: "body", label: "Body", kind: "area" },
    ], "The trial tells which queues it would reach.");
    if (!said) return;
    const body = { exchange: said.exchange, key: said.key, body: said.body, properties: valuesOf(said.lines) };
    const plan = await post("messages", { ...body, dry_run: true });
    const reached = plan.queues.length ? `It would reach ${plan.queues.join(", ")}.` : "It would reach no queue.";
    if (!(await confirmed("Send this message?", "Send it", element("p", {}, reached)))) return;
    await post("messages", body);
    say("the message was sent");
    await look();
  });

  const orders = [
    ...(user.mayAdminister ? [["New exchange…", make], ["New binding…", bind]] : []),
    ...(user.mayOperate ? [["Try or send a message…", send]] : []),
  ].map((made) => button(...made));
  look.pauseMs = 5000;
  show(element("h1", {}, "Exchanges"), element("div", { class: "bar" }, ...orders), exchanges.whole, pages.whole,
    element("h2", {}, "Bindings ", where), element("div", { class: "bar" }, all), picture, bindings.whole, pagesOfBindings.whole);
  return look;
}
