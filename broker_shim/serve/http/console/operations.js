// What purges, moves and the like did, and what undid them; operators take one back after a question.

import { complain, confirmed, element, say, show, table, utc } from "./elements.js";
import { get, post } from "./requests.js";

const LIMIT = 100;

const total = (counts) => Object.values(counts).reduce((sum, each) => sum + each, 0);

export function operations(_parts, user) {
  async function undo(operation) {
    const path = `operations/${encodeURIComponent(operation)}/undo`;
    try {
      const told = await post(path, { dry_run: true });
      const lost = total(Object.fromEntries(Object.entries(told.lost).map(([why, ids]) => [why, ids.length])));
      const stays = lost ? ` ${lost} cannot go back: ${Object.keys(told.lost).join(", ")}.` : "";
      const text = `${total(told.restored)} messages go back to ${Object.keys(told.restored).join(", ")}.${stays}`;
      if (!(await confirmed("Take this back?", `Undo ${operation}`, element("p", {}, text)))) return;
      const done = await post(path, {});
      say(`${done.done} messages were put back`);
      await look();
    } catch (error) {
      complain(error);
    }
  }

  const columns = [
    { title: "Operation", text: (row) => row.operation },
    { title: "At (UTC)", text: (row) => utc(row.at) },
    { title: "Did", text: (row) => row.action },
    { title: "Queue", text: (row) => row.queue },
    { title: "To", text: (row) => row.to ?? "" },
    { title: "Messages", isNumber: true, text: (row) => String(row.messages ?? "") },
    { title: "Undone by", text: (row) => row.undone_by ?? "" },
  ];
  const order = {
    title: "Order",
    node: (row) => element("button",
      { type: "button", "aria-label": `Undo ${row.operation}`, onclick: () => undo(row.operation) }, "Undo…"),
  };
  const list = table("Operations", user.mayOperate ? [...columns, order] : columns, (row) => row.operation);

  async function look() {
    list.fill((await get("operations", { limit: LIMIT })).items.reverse());
  }

  look.pauseMs = 10000;  // it reads tables, for which the store commits what it has
  show(element("h1", {}, "Operations"), list.whole);
  return look;
}
