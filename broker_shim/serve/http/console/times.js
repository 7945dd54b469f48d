// Times as people read them: in UTC, or as this browser's clock has them, as they choose. The browser
// keeps what was chosen, and the address has it, for whoever gets that.

import { keepEverywhere } from "./address.js";
import { element } from "./elements.js";

const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone;
const [KEY, IN_UTC, IN_LOCAL] = ["times", "utc", "local"];

let isLocal = stored() === IN_LOCAL;

// A browser that keeps nothing for a page throws where it is asked.
function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

let isDecided = false;

// Show times in the zone that the address names with which the page came; if that names none, or later, as
// before: an address that Back finds has what was chosen before.
export function useZoneOf(address) {
  const named = address.query.get("zone");
  useZone(named && !isDecided ? named : isLocal ? IN_LOCAL : IN_UTC);
}

function useZone(named) {
  isDecided = true;
  isLocal = named === IN_LOCAL;
  document.getElementById("zone").value = isLocal ? IN_LOCAL : IN_UTC;
  keepEverywhere({ zone: isLocal ? IN_LOCAL : "" });
}

export const zone = () => (isLocal ? LOCAL : "UTC");

// A moment in milliseconds as ISO 8601 without its zone: whatever shows it names the zone.
export function written(at) {
  const shift = isLocal ? new Date(at).getTimezoneOffset() * 60_000 : 0;
  return new Date(at - shift).toISOString().replace("T", " ").replace("Z", "");
}

// A time as the broker tells it, ISO 8601; one that no calendar here has stays as it came.
export function when(time) {
  const at = Date.parse(time);
  return Number.isNaN(at) ? time : written(at);
}

// Texts for the times of a chart that can be told apart: by the day, the minute, or the second.
export function timeTextOf(from, to) {
  const days = (to - from) / 86_400_000;
  const [begin, end] = days < 0.1 ? [11, 19] : days < 1 ? [11, 16] : days < 10 ? [5, 16] : [0, 10];
  return (at) => written(at).slice(begin, end);
}

// What chooses between the two; `changed` has the view show its times anew.
export function zoneChoice(changed) {
  const choice = element("select", { id: "zone", onchange: choose },
    element("option", { value: IN_UTC }, "UTC"), element("option", { value: IN_LOCAL }, `${LOCAL} (local)`));
  async function choose() {
    useZone(choice.value);
    try {
      localStorage.setItem(KEY, choice.value);
    } catch { /* it is chosen until the page is loaded again */ }
    await changed();
    if (document.activeElement?.id === "main") choice.focus();  // else somebody went on meanwhile
  }
  return [element("label", { for: "zone" }, "Times"), choice];
}
