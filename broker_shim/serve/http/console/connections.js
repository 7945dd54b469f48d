// Clients that are connected; an operator may close one.

import { keep, offsetOf } from "./address.js";
import { confirmed, element, order, pager, say, show, table, terms } from "./elements.js";
import { get, remove } from "./requests.js";
import { when, zone } from "./times.js";

const LIMIT = 100;

export function connections(_parts, user, query) {
  let offset = offsetOf(query);
  const columns = [
    { title: "Number", isNumber: true, text: (row) => String(row.connection) },
    { title: "Peer", isShort: true, text: (row) => row.peer },
    { title: "User", text: (row) => row.user },
    { title: "Container", text: (row) => row.container ?? "" },
    { title: "TLS", isShort: true, text: (row) => row.tls ?? "no" },
    { title: "Links", isNumber: true, text: (row) => String(row.links) },
    { title: `Since (${zone()})`, text: (row) => when(row.connected_at) },
    { title: "Member", text: (row) => row.member ?? "" },
  ];
  if (user.mayOperate) {
    columns.push({
      title: "Action",
      node: (row) => element("button",
        { type: "button", "aria-label": `Close connection ${row.connection}`, onclick: () => close(row) },
        "Close…"),
    });
  }
  const list = table("Connections", columns, (row) => `${row.member ?? ""} ${row.connection}`);
  const pages = pager(LIMIT, go);

  const close = order(async (row) => {
    const details = terms([["peer", row.peer], ["user", row.user], ["container", row.container], ["links", row.links]]);
    if (!(await confirmed(`Close connection ${row.connection}?`, "Close it", details))) return;
    const member = row.member ? "?" + new URLSearchParams({ member: row.member }) : "";
    await remove(`connections/${row.connection}${member}`);
    say(`connection ${row.connection} is closed`);
    await look();
  });

  async function look() {
    const page = await get("connections", { limit: LIMIT, offset });
    list.fill(page.items);
    pages.at(page, page.items.length);
  }

  async function go(to) {
    offset = Math.max(0, to);
    keep({ offset });
    await look();
  }

  show(element("h1", {}, "Connections"), list.whole, pages.whole);
  return look;
}
