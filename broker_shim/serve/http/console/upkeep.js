// What keeps a root small, copied and true: members, replicas with their lag, jobs, and findings.

import { element, show } from "./elements.js";
import { get } from "./requests.js";

const LIMIT = 50;

function section(title, rows, none) {
  const heading = element("h2", {}, title);
  if (!rows.length) return [heading, element("p", {}, none)];
  const names = Object.keys(rows[0]);
  const head = names.map((name) => element("th", { scope: "col" }, name));
  const lines = rows.map((row) =>
    element("tr", {}, ...names.map((name) => element("td", {}, row[name] === null ? "" : String(row[name])))));
  return [heading, element("table", { "aria-label": title },
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines))];
}

export function upkeep(_parts, user) {
  const told = element("div");
  let shown = "";

  async function look() {
    if (!user.has_history) {
      told.replaceChildren(element("p", {}, "This broker has no root: there is nothing to keep up."));
      return;
    }
    const found = await get("upkeep", { limit: LIMIT });
    const text = JSON.stringify(found);
    if (text === shown) return;  // else whatever has the focus would lose it
    shown = text;
    told.replaceChildren(
      ...section("Replicas", found.replicas, "This root has no replica in a folder."),
      ...section("Members", found.members, "No other broker shares this root."),
      ...section("Jobs", found.job_runs, "No job has run yet: sparkstore compact ROOT."),
      ...section("Findings", found.findings, "Nothing was found, or reconcile has not run yet."));
  }

  look.pauseMs = 10000;  // it reads tables, for which the store commits what it has
  show(element("h1", {}, "Upkeep"), told);
  return look;
}
