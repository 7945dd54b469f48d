// What purges, moves and the like did, and what undid them; operators take one back after a question.

import { button, confirmed, element, order, say, show, table } from "./elements.js";
import { get, post } from "./requests.js";
import { when, zone } from "./times.js";

const LIMIT = 100;

const total = (counts) => Object.values(counts).reduce((sum, each) => sum + each, 0);

export function operations(_parts, user) {
  const undo = order(async (operation) => {
    const path = `operations/${encodeURIComponent(operation)}/undo`;
    const plan = await post(path, { dry_run: true });
    const lost = total(Object.fromEntries(Object.entries(plan.lost).map(([why, ids]) => [why, ids.length])));
    const stays = lost ? ` ${lost} cannot go back: ${Object.keys(plan.lost).join(", ")}.` : "";
    const text = `${total(plan.restored)} messages go back to ${Object.keys(plan.restored).join(", ")}.${stays}`;
    if (!(await confirmed("Take this back?", `Undo ${operation}`, element("p", {}, text)))) return;
    const done = await post(path, {});
    say(`${done.done} messages were put back`);
    await look();
  });

  const columns = [
    { title: "Operation", text: (row) => row.operation },
    { title: `At (${zone()})`, text: (row) => when(row.at) },
    { title: "Did", text: (row) => row.action },
    { title: "Queue", text: (row) => row.queue },
    { title: "To", text: (row) => row.to ?? "" },
    { title: "Messages", isNumber: true, text: (row) => String(row.messages ?? "") },
    { title: "Undone by", text: (row) => row.undone_by ?? "" },
  ];
  const orders = {
    title: "Order",
    node: (row) => button("Undo…", () => undo(row.operation), `Undo ${row.operation}`),
  };
  const list = table("Operations", user.mayOperate ? [...columns, orders] : columns, (row) => row.operation);

  async function look() {
    list.fill((await get("operations", { limit: LIMIT })).items.reverse());
  }

  look.pauseMs = 10000;  // it reads tables, for which the store commits what it has
  show(element("h1", {}, "Operations"), list.whole);
  return look;
}
