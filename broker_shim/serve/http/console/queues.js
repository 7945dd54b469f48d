// The list of queues with depth, rates and age.

import { sparkline } from "./chart.js";
import { asked, carriedOut, valuesOf } from "./forms.js";
import { button, element, link, order, show, table } from "./elements.js";
import { pagedList } from "./paged_list.js";
import { put, queuePath } from "./requests.js";
import { sample } from "./samples.js";
import { age } from "./words.js";

const DURABILITIES = ["unsettled-state", "configuration", "none"];

const count = (title, field) => ({ title, isNumber: true, sort: field, text: (row) => row[field].toLocaleString() });

export function queues(_parts, user, query) {
  const sorting = { by: query.get("sort") ?? "", go: () => go(0) };
  const filter = element("input", { type: "search", id: "filter", oninput: () => go(0) });
  filter.value = query.get("match") ?? "";
  const policy = query.get("policy") ?? "";
  const rate = (title, field) => ({
    title,
    isNumber: true,
    text: (row) => row.seen.at(-1)[field]?.toFixed(1) ?? "",
  });
  const list = table("Queues", [
    { title: "Queue", node: (row) => link(row.name, "queue", row.name) },
    count("Messages", "depth"),
    { title: "Last minutes", isExtra: true, picture: (row) => sparkline(row.seen.map((each) => each.depth)) },
    count("Acquired", "acquired"),
    rate("In/s", "inRate"),
    rate("Out/s", "outRate"),
    { title: "Oldest", isNumber: true, sort: "oldest_age_s", text: (row) => age(row.oldest_age_s) },
    { ...count("Consumers", "consumers"), tone: (row) => (row.depth && !row.consumers ? "care" : "") },
    { ...count("Dead-lettered", "dead_lettered"), tone: (row) => (row.dead_lettered ? "bad" : "") },
  ], (row) => row.name, sorting);
  const fill = (rows) => list.fill(rows.map((row) => ({ ...row, seen: sample(row) })));
  const { look, go, whole: pages } = pagedList(query, "queues", fill,
    () => ({ match: filter.value, policy, sort: sorting.by }));

  const make = order(async () => {
    const said = await asked("New queue", "Try it", [
      { name: "name", label: "Name", required: true }, { name: "durability", label: "Durability", kind: "select", choices: DURABILITIES },
      { name: "lines", label: "Arguments (name = value)", kind: "area" },
    ], "Such as max_depth = 10000 or dead_letter_queue = dead");
    if (!said) return;
    const body = { durability: said.durability, arguments: valuesOf(said.lines) };
    const send = (dryRun) => put(queuePath(said.name), { ...body, dry_run: dryRun });
    if (await carriedOut("Create this queue?", "Create it", send)) await look();
  });

  show(element("h1", {}, policy ? `Queues that the policy ${policy} fits` : "Queues"),
    element("div", { class: "bar" }, element("label", { for: "filter" }, "Name contains"), filter,
      ...(user.mayAdminister ? [button("New queue…", make)] : [])),
    list.whole, pages);
  return look;
}
