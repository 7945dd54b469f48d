// A message in a panel beside the list that it is of: with an address, closed by Escape, stepped
// through by keys.

import { button, element, order, terms } from "./elements.js";
import { historyOf } from "./history.js";
import { panelBeside } from "./panel.js";
import { repairButton } from "./queue_orders.js";
import { get, queuePath } from "./requests.js";
import { when, zone } from "./times.js";
import { holder } from "./words.js";

const TIMES = ["x-opt-death-time", "x-opt-death-first-time", "x-opt-delivery-time"];

// Why a message died, and where: rejected on orders: shop:price (price is negative)
export function died(death) {
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

// An annotation; the times among them are milliseconds since 1970.
export function annotation([name, value]) {
  const at = new Date(Number(value));
  if (!TIMES.includes(name) || Number.isNaN(at.getTime())) return [name, value];
  return [`${name} (${zone()})`, when(at.toISOString())];
}

function property(name, value, type) {
  return [name, type ? element("span", {}, value, " ", element("span", { class: "soft" }, type)) : value];
}

// The panel of a queue's messages; `list` and `pages` are theirs, `kept` is called when the message
// that is `opened` is another one, `look` after an order.
export function messagePanel(name, user, { list, pages, kept, look }) {
  let opened = "";
  const panel = panelBeside(close, { j: () => step(1), k: () => step(-1) });
  const buttonOf = (id) => list.whole.querySelector(`button[aria-label="Show message ${id}"]`);

  const open = order(async (id) => {
    const it = await get(queuePath(name, `/messages/${encodeURIComponent(id)}`));
    opened = String(id);
    kept();
    panel.show(`Message ${it.id}`, [button("Previous (k)", () => step(-1)), button("Next (j)", () => step(1))],
      terms([
        [`came (${zone()})`, when(it.enqueued_at)], ["acquired by", it.acquired_by && holder(it.acquired_by)], ["died", died(it.death)],
        ["subject", it.subject], ["content type", it.content_type], ["user", it.user_id], ["message id", it.amqp_message_id],
        ["correlation id", it.correlation_id], [`expires (${zone()})`, it.expires_at && when(it.expires_at)],
        ["priority", it.priority], ["durable", it.durable],
        ...Object.entries(it.annotations).map(annotation),
      ]),
      ...propertiesOf(it),
      element("h2", {}, `Body (${it.body_form}, ${it.body_bytes} bytes)`),
      element("pre", { tabindex: "0" }, readable(it)),
      ...(user.mayOperate && it.body_form !== "omitted" ? [repairButton(name, it, look)] : []),
      ...(user.has_history ? [element("h2", {}, "History"), await historyOf(it.id)] : []));
    mark();
    list.whole.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  });

  function propertiesOf(it) {
    const pairs = Object.entries(it.properties).map(([each, value]) => property(each, value, it.property_types[each]));
    return pairs.length ? [element("h2", {}, "Properties"), terms(pairs)] : [];
  }

  function close() {
    const button = buttonOf(opened);
    opened = "";
    kept();
    panel.whole.hidden = true;
    mark();
    button?.focus();
  }

  // Mark the row of the message that is shown.
  function mark() {
    for (const line of list.whole.tBodies[0].rows) {
      if (line.contains(buttonOf(opened))) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    }
  }

  // Open the message beside the one that is shown, in the order of the list, of another page too.
  async function step(by) {
    const line = buttonOf(opened)?.closest("tr");
    if (!line) return;
    let beside = by < 0 ? line.previousElementSibling : line.nextElementSibling;
    if (!beside && await pages.turn(by)) {
      const { rows } = list.whole.tBodies[0];
      beside = rows[by < 0 ? rows.length - 1 : 0];
    }
    beside?.querySelector("button").click();
  }

  return { whole: panel.whole, open, mark, opened: () => opened };
}
