// The page: which view is shown, and when it looks again. A view is a function (parts, user, query)
// that shows itself and returns `look`, which is called every two seconds while the page is visible; or
// null: it does not change by itself.

import { here } from "./address.js";
import { complain, element, say, show } from "./elements.js";
import { BrokerAway, get } from "./requests.js";
import { overview } from "./overview.js";
import { queues } from "./queues.js";
import { queue } from "./queue.js";
import { connections } from "./connections.js";
import { deadLetters } from "./dead_letters.js";
import { operations } from "./operations.js";
import { sql } from "./sql.js";
import { policies } from "./policies.js";
import { streams } from "./streams.js";
import { subscriptions } from "./subscriptions.js";
import { upkeep } from "./upkeep.js";
import { users } from "./users.js";
import { wiring } from "./wiring.js";
import { useZoneOf, zoneChoice } from "./times.js";

const VIEWS = { overview, queues, queue, connections, operations, upkeep, sql, exchanges: wiring, streams, subscriptions, policies, users, "dead-letters": deadLetters };
const LOOK_MS = 2000;

let look = null;
let turn = 0;
let hasFailed = false;
let user = null;

document.getElementById("times").append(...zoneChoice(() => open()));

async function open() {
  const mine = ++turn;
  let address;
  try {
    address = here();
    useZoneOf(address);
  } catch (error) {
    show(element("h1", {}, "No such view"));
    document.title = "No such view – sparkstore";
    complain(error);
    return;
  }
  const name = Object.hasOwn(VIEWS, address.view) ? address.view : "overview";
  for (const each of document.querySelectorAll("nav a")) {
    const isHere = each.getAttribute("href") === "#/" + (name === "queue" ? "queues" : name);
    if (isHere) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  show();
  say("");
  complain(null);
  try {
    user ??= await get("self");
    document.getElementById("user").textContent = `${user.user}, ${user.role}`;
    if (mine !== turn) return;
    look = VIEWS[name](address.parts, { ...user, mayOperate: user.role !== "monitor", mayAdminister: user.role === "admin" }, address.query);
    document.title = `${document.querySelector("h1").textContent} – sparkstore`;
    document.getElementById("main").focus();
    if (look) await again(mine);
  } catch (error) {
    complain(error);
    if (error instanceof BrokerAway) setTimeout(() => mine === turn && open(), LOOK_MS);
  }
}

async function again(mine) {
  if (mine !== turn) return;
  try {
    if (!document.hidden) {
      await look();
      if (hasFailed && mine === turn) complain(null);  // what an order complained of stays
      hasFailed = false;
    }
  } catch (error) {
    hasFailed = true;
    if (mine === turn) complain(error);
  }
  setTimeout(again, look.pauseMs ?? LOOK_MS, mine);
}

window.addEventListener("hashchange", open);
open();
