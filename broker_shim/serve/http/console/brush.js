// What a pointer does on a chart over time: it reads the values of a moment, and drags over a part
// that shall be seen alone.

import { svg } from "./elements.js";

const LEAST_DRAG = 6;

// `timeOf(x)` is the moment at a place of the chart, within its ends; `tell(moment)` shows what was
// then, null: nothing; `held(true)` keeps the chart from being drawn anew, `zoom(from, to)` is called
// when a part was chosen.
export function brush(drawn, { top, bottom, timeOf, tell, held, zoom }) {
  const chosen = svg("rect", { class: "chosen", y: top, height: bottom - top, width: 0 });
  const reader = svg("line", { class: "reader", y1: top, y2: bottom, visibility: "hidden" });
  let began = null;
  drawn.append(chosen, reader);

  function placeOf(event) {
    const box = drawn.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * drawn.viewBox.baseVal.width;
  }

  function letGo() {
    began = null;
    chosen.setAttribute("width", 0);
    held(false);
  }

  drawn.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    began = placeOf(event);
    drawn.setPointerCapture(event.pointerId);
    held(true);
  });
  drawn.addEventListener("pointermove", (event) => {
    const x = placeOf(event);
    reader.setAttribute("x1", x);
    reader.setAttribute("x2", x);
    reader.setAttribute("visibility", "visible");
    tell(timeOf(x));
    if (began === null) return;
    chosen.setAttribute("x", Math.min(began, x));
    chosen.setAttribute("width", Math.abs(x - began));
  });
  drawn.addEventListener("pointerup", (event) => {
    if (began === null) return;
    const [from, to] = [began, placeOf(event)].sort((one, other) => one - other);
    letGo();
    if (to - from >= LEAST_DRAG) zoom(timeOf(from), timeOf(to));
  });
  drawn.addEventListener("pointercancel", letGo);
  drawn.addEventListener("pointerleave", () => {
    reader.setAttribute("visibility", "hidden");
    tell(null);
  });
}
