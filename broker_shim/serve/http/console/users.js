// Users with their roles, and the rules of who may do what; files decide both, so nothing is changed.

import { element, show, table } from "./elements.js";
import { get } from "./requests.js";

export function users() {
  const people = table("Users", [
    { title: "User", text: (row) => row.name }, { title: "Roles", text: (row) => row.roles.join(", ") },
  ], (row) => row.name);
  const rules = table("Permissions", [
    { title: "Who", text: (row) => row.who.join(", ") }, { title: "Address", text: (row) => row.address },
    { title: "May", text: (row) => row.allow.join(", ") },
  ], (row) => JSON.stringify(row));
  const note = element("p");

  async function look() {
    const it = await get("users");
    note.textContent = it.requires_login
      ? "sparkstore passwd FILE NAME --roles ROLE changes users; permissions are in the configuration."
      : "Nobody logs in: everybody on this machine may do everything.";
    people.fill(it.users);
    rules.fill(it.rules);
  }

  look.pauseMs = 10000;
  show(element("h1", {}, "Users"), note, people.whole, element("h2", {}, "Permissions"), rules.whole);
  return look;
}
