// Clients that are connected, each with its links; an operator may close one.

import { button, confirmed, element, order, say, show, table, terms } from "./elements.js";
import { pagedList } from "./paged_list.js";
import { panelBeside } from "./panel.js";
import { get, remove } from "./requests.js";
import { when, zone } from "./times.js";
import { size } from "./words.js";

// Bytes of each connection when it was last looked at, for rates.
let before = new Map();

const keyOf = (row) => `${row.member ?? ""} ${row.connection}`;

const numberOf = (key) => key.slice(key.lastIndexOf(" ") + 1);

const memberOf = (key) => key.slice(0, key.lastIndexOf(" "));

const named = (key) => `connection ${numberOf(key)}${memberOf(key) && ` at ${memberOf(key)}`}`;

const showing = (key) => `Show links of ${named(key)}`;

function rated(rows) {
  const at = Date.now();
  const now = new Map(rows.map((row) => [keyOf(row), { at, row }]));
  const rate = (row, field) => {
    const last = before.get(keyOf(row));
    return last && at > last.at ? ((row[field] - last.row[field]) * 1000) / (at - last.at) : null;
  };
  const lines = rows.map((row) => ({ ...row, inRate: rate(row, "received_bytes"), outRate: rate(row, "sent_bytes") }));
  before = now;
  return lines;
}

const rateOf = (value) => (value === null ? "" : `${size(Math.max(0, value))}/s`);

export function connections(_parts, user, query) {
  const sorting = { by: query.get("sort") ?? "", go: () => go(0) };
  const heartbeat = (row) => (row.heartbeat_s ? `heartbeat ${row.heartbeat_s} s` : "no heartbeat");
  const columns = [
    {
      title: "Number", isNumber: true, sort: "connection",
      node: (row) => button(String(row.connection), () => open(keyOf(row)), showing(keyOf(row))),
    },
    { title: "Peer", text: (row) => `${row.peer}${row.member ? ` at ${row.member}` : ""}` },
    { title: "User", text: (row) => row.user },
    { title: "Client", text: (row) => [row.product, row.container].filter(Boolean).join(", ") },
    { title: "Protocol", isExtra: true, text: (row) => [row.protocol, row.tls ?? "no TLS", heartbeat(row)].filter(Boolean).join(", ") },
    { title: "State", isShort: true, tone: (row) => (row.open ? "good" : "care"), text: (row) => (row.open ? "open" : "not open") },
    { title: "Links", isNumber: true, sort: "links", text: (row) => `${row.links} in ${row.sessions ?? "?"} sessions` },
    { title: "In", isNumber: true, sort: "received_bytes", text: (row) => rateOf(row.inRate) },
    { title: "Out", isNumber: true, sort: "sent_bytes", text: (row) => rateOf(row.outRate) },
    { title: `Since (${zone()})`, text: (row) => when(row.connected_at).slice(0, 19) },
  ];
  if (user.mayOperate) {
    columns.push({
      title: "Action",
      node: (row) => button("Close…", () => close(row), `Close ${named(keyOf(row))}`),
    });
  }
  const list = table("Connections", columns, keyOf, sorting);
  const links = table("Links", [
    { title: "Link", text: (row) => row.name },
    { title: "Its client", isShort: true, text: (row) => ({ sender: "sends to", receiver: "receives from" })[row.role] },
    { title: "Address", text: (row) => row.address ?? "" },
    { title: "Credit", isNumber: true, text: (row) => row.credit.toLocaleString() },
    { title: "Unsettled", isNumber: true, text: (row) => row.unsettled.toLocaleString() },
    { title: "Settles", isExtra: true, text: (row) => row.settle_mode },
  ], (row) => row.place);  // names are unique in a session only
  const note = element("p", { class: "soft" });
  let opened = query.get("links") ?? "";  // the key of the connection whose links are beside the list
  const panel = panelBeside(() => {
    const shower = list.whole.querySelector(`[aria-label="${CSS.escape(showing(opened))}"]`);
    [opened, panel.whole.hidden] = ["", true];
    kept();
    shower?.focus();
  });
  const { look: lookAtRows, go, kept, whole: pages } = pagedList(query, "connections", (rows) => list.fill(rated(rows)),
    () => ({ sort: sorting.by }), () => ({ links: opened }));

  const placeOf = (member) => (member ? { member } : {});

  // Show links as the answer has them, unless those of another are wanted meanwhile.
  async function lookAtLinks() {
    const key = opened;
    try {
      const it = await get(`connections/${encodeURIComponent(numberOf(key))}/links`, placeOf(memberOf(key)));
      if (key !== opened) return;
      links.fill(it.items.map((row, place) => ({ ...row, place })));
      note.textContent = it.left_out ? `${it.left_out.toLocaleString()} more are left out.` : "";
    } catch (error) {
      if (key !== opened) return;
      if (error.status !== 404) throw error;
      opened = "";
      kept();
      links.fill([]);
      note.textContent = "It has ended.";
    }
  }

  const open = order(async (key) => {
    opened = key;
    kept();
    links.fill([]);
    note.textContent = "";
    panel.show(`Links of ${named(key)}`, [], note, links.whole);
    await lookAtLinks();
  });

  async function look() {
    await lookAtRows();
    if (opened) await lookAtLinks();
  }

  const close = order(async (row) => {
    const details = terms([["peer", row.peer], ["user", row.user], ["client", row.product], ["container", row.container], ["links", row.links]]);
    if (!(await confirmed(`Close ${named(keyOf(row))}?`, "Close it", details))) return;
    await remove(`connections/${row.connection}`, placeOf(row.member));
    say(`${named(keyOf(row))} is closed`);
    await look();
  });

  show(element("h1", {}, "Connections"), list.whole, pages, panel.whole);
  if (opened) open(opened);
  return look;
}
