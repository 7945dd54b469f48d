// Orders about a queue and its messages: about those that are chosen, or about all. Each is tried
// first, and what it would do is shown before it is done.

import { asked, carriedOut, linesOf, valuesOf } from "./forms.js";
import { button, confirmed, element, order, say } from "./elements.js";
import { get, patch, post, queuePath, remove } from "./requests.js";

const stay = (plan) => (plan.left ? ` ${plan.left} that consumers hold stay.` : "");

export function queueOrders(name, user, list, look) {
  const chosen = () => [...list.whole.querySelectorAll(".choice:checked")].map((box) => Number(box.value));

  async function done(act, more, title, words, go) {
    const ids = chosen();
    const body = ids.length ? { ...more, ids } : more;
    const plan = await post(queuePath(name, act), { ...body, dry_run: true });
    if (!(await confirmed(title, go(plan), element("p", {}, words(plan))))) return;
    const outcome = await post(queuePath(name, act), body);
    say(`${outcome.done} messages were ${PAST[act]}; sparkstore undo ROOT ${outcome.operation} takes that back`);
    await look();
  }

  const PAST = { "/purge": "purged", "/move": "moved", "/requeue": "requeued", "/redrive": "sent back" };

  const purge = order(() => done("/purge", {}, "Purge this queue?",
    (plan) => `${plan.would} messages are taken off ${name}.${stay(plan)}`, (plan) => `Purge ${plan.would} messages`));

  const move = order(async () => {
    const target = element("input", { id: "target", required: true, autofocus: true });
    const label = element("label", { for: "target" }, "To the queue ");
    const what = chosen().length ? `Move ${chosen().length} chosen messages` : "Move all messages of this queue";
    if (!(await confirmed(what, "Count them", element("p", {}, label, target)))) return;
    const to = target.value;
    await done("/move", { to }, "Move these messages?",
      (plan) => `${plan.would} messages go from ${name} to ${to}.${stay(plan)}`, (plan) => `Move ${plan.would} messages`);
  });

  const requeue = order(() => done("/requeue", {}, "Put these at the end?",
    (plan) => `${plan.would} messages go to the end of ${name}, with delivery count 0.${stay(plan)}`,
    (plan) => `Requeue ${plan.would} messages`));

  const redrive = order(() => done("/redrive", {}, "Redrive this queue?", (plan) => {
    const going = Object.entries(plan.to).map(([queue, count]) => `${count} to ${queue}`).join(", ");
    const gone = Object.keys(plan.origin_gone).join(", ");
    return `Dead letters go back: ${going || "none"}.${gone ? ` Gone: ${gone}.` : ""}`;
  }, () => "Send them back"));

  const send = order(async () => {
    const said = await asked(`Send a message to ${name}`, "Try it", [
      { name: "body", label: "Body", kind: "area" }, { name: "subject", label: "Subject" },
      { name: "lines", label: "Properties (name = value)", kind: "area" },
    ]);
    if (!said) return;
    const body = { queue: name, body: said.body, properties: valuesOf(said.lines), ...(said.subject ? { subject: said.subject } : {}) };
    const plan = await post("messages", { ...body, dry_run: true });
    if (!(await confirmed("Send this message?", "Send it", element("p", {}, `It goes to ${plan.queues.join(", ")}.`)))) return;
    await post("messages", body);
    say("the message was sent");
    await look();
  });

  const alter = order(async () => {
    const before = (await get(queuePath(name))).arguments;
    const said = await asked(`Alter ${name}`, "Try it",
      [{ name: "lines", label: "Arguments (name = value)", kind: "area", value: linesOf(before) }],
      "A line that is deleted takes its argument away.");
    if (!said) return;
    const set = valuesOf(said.lines);
    const unset = Object.keys(before).filter((each) => !(each in set));
    if (await carriedOut("Alter this queue?", "Alter it", (dryRun) => patch(queuePath(name), { set, unset, dry_run: dryRun }))) await look();
  });

  const drop = order(async () => {
    const said = await asked(`Delete ${name}?`, "Try it", [{ name: "force", label: "With the messages on it", kind: "check" }]);
    if (!said) return;
    const sendIt = (dryRun) => remove(queuePath(name), { force: said.force, dry_run: dryRun });
    if (await carriedOut(`Delete the queue ${name}?`, "Delete it", sendIt)) location.hash = "#/queues";
  });

  return element("div", { class: "bar" },
    ...[["Purge…", purge], ["Move…", move], ["Requeue…", requeue], ["Redrive…", redrive]].map((made) => button(...made)),
    element("span", { class: "soft" }, "the chosen messages, else all"),
    ...[["Send…", send], ...(user.mayAdminister ? [["Alter…", alter], ["Delete…", drop]] : [])].map((made) => button(...made)));
}

// A message in the place of another: its body and properties as they are changed.
export function repairButton(name, message, look) {
  const repair = order(async () => {
    const isBytes = message.body_form === "base64";
    const said = await asked(`Repair message ${message.id}`, "Try it", [
      { name: "body", label: isBytes ? "Body (base64)" : "Body", kind: "area", value: message.body },
      { name: "lines", label: "Properties (name = value)", kind: "area", value: linesOf(message.properties) },
      { name: "to", label: "To the queue (else where it came from)" },
    ]);
    if (!said) return;
    const properties = Object.fromEntries(Object.entries(valuesOf(said.lines)).map(([key, value]) => [key, String(value)]));
    const unset = Object.keys(message.properties).filter((each) => !(each in properties));
    const changed = said.body === message.body ? {} : { [isBytes ? "body_base64" : "body"]: said.body };
    const body = { ...changed, properties, unset, queue: name, ...(said.to ? { to: said.to } : {}) };
    const send = (dryRun) => post(`messages/${message.id}/resubmit`, { ...body, dry_run: dryRun });
    if (await carriedOut("Put this in its place?", "Resubmit it", send)) await look();
  });
  return element("p", {}, button("Repair and resubmit…", repair));
}
