// A panel beside a list: with what one row of it is, closed by Escape.

import { button, element, keys } from "./elements.js";

// `close` hides it and says so in the address; `acts` are done by more keys while it has the focus.
export function panelBeside(close, acts = {}) {
  const whole = element("aside", { class: "panel", hidden: true, onkeydown: keys({ Escape: close, ...acts }) });

  function show(title, buttons, ...children) {
    const heading = element("h2", { tabindex: "-1" }, title);
    whole.setAttribute("aria-label", title);
    whole.replaceChildren(element("div", { class: "bar" }, ...buttons, button("Close (Esc)", close)), heading, ...children);
    whole.hidden = false;
    heading.focus();
  }

  return { whole, show };
}
