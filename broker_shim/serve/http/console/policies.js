// Policies: arguments for all queues that fit a pattern; administrators set and delete them.

import { asked, carriedOut, linesOf, valuesOf } from "./forms.js";
import { button, element, linkAsking, order, show, table } from "./elements.js";
import { pagedList } from "./paged_list.js";
import { put, remove } from "./requests.js";

export function policies(_parts, user, query) {
  const list = table("Policies", [
    { title: "Policy", text: (row) => row.name },
    { title: "Pattern", text: (row) => row.match },
    { title: "Priority", isNumber: true, text: (row) => String(row.priority) },
    { title: "Arguments", text: (row) => linesOf(row.arguments).replaceAll("\n", ", ") },
    { title: "Queues", isNumber: true, node: (row) => linkAsking(row.queues.toLocaleString(), { policy: row.name }, "queues") },
    ...(user.mayAdminister ? [{
      title: "Order",
      node: (row) => element("span", { class: "bar" },
        button("Change…", () => set(row), `Change ${row.name}`), button("Delete…", () => drop(row), `Delete ${row.name}`)),
    }] : []),
  ], (row) => JSON.stringify(row));
  const { look, whole: pages } = pagedList(query, "policies", list.fill);

  const set = order(async (row) => {
    const said = await asked(row ? `Change ${row.name}` : "New policy", "Try it", [
      ...(row ? [] : [{ name: "name", label: "Name", required: true }]),
      { name: "match", label: "Pattern", value: row?.match, required: true },
      { name: "priority", label: "Priority", kind: "number", value: row?.priority ?? 0 },
      { name: "lines", label: "Arguments (name = value)", kind: "area", value: linesOf(row?.arguments ?? {}) },
    ], "* is a word, # any words");
    if (!said) return;
    const body = { match: said.match, priority: Number(said.priority), arguments: valuesOf(said.lines) };
    const path = `policies/${encodeURIComponent(row?.name ?? said.name)}`;
    if (await carriedOut("Set this policy?", "Set it", (dryRun) => put(path, { ...body, dry_run: dryRun }))) await look();
  });

  const drop = order(async ({ name }) => {
    const send = (dryRun) => remove(`policies/${encodeURIComponent(name)}`, { dry_run: dryRun });
    if (await carriedOut(`Delete the policy ${name}?`, "Delete it", send)) await look();
  });

  const make = button("New policy…", () => set(null));
  look.pauseMs = 5000;
  show(element("h1", {}, "Policies"), ...(user.mayAdminister ? [element("div", { class: "bar" }, make)] : []),
    list.whole, pages);
  return look;
}
