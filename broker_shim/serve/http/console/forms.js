// Orders with values: a form in the dialog, a dry run whose outcome is shown, and then the order.

import { confirmed, element, say, terms } from "./elements.js";

let count = 0;

function control({ kind = "text", name, value = "", choices = [], required = false }, id) {
  if (kind === "area") {
    const area = element("textarea", { id, name, rows: 5, spellcheck: "false" });
    area.value = value;
    return area;
  }
  if (kind === "select") {
    const made = element("select", { id, name }, ...choices.map((each) => element("option", { value: each }, each)));
    made.value = value || choices[0];
    return made;
  }
  if (kind === "check") return element("input", { id, name, type: "checkbox", checked: Boolean(value) });
  return element("input", { id, name, type: kind, value, required, autocomplete: "off" });
}

// Ask for values; `fields` have `name`, `label` and what `control` takes. Null: it was cancelled.
export async function asked(title, go, fields, note = "") {
  const made = fields.map((field) => {
    const id = `field-${++count}`;
    return { field, input: control(field, id), label: element("label", { for: id }, field.label) };
  });
  const rows = made.map(({ label, input }) => element("p", { class: "field" }, label, input));
  made[0].input.setAttribute("autofocus", "");
  if (!(await confirmed(title, go, ...rows, element("p", { class: "soft" }, note)))) return null;
  return Object.fromEntries(made.map(({ field, input }) =>
    [field.name, field.kind === "check" ? input.checked : input.value]));
}

// A value of an answer in words: {"q": {"max_depth": 5}} is q: max_depth = 5.
function phrase(value) {
  if (value === null || typeof value !== "object") return String(value ?? "none");
  if (Array.isArray(value)) return value.map(phrase).join(", ");
  return Object.entries(value).map(([name, inner]) =>
    `${name}${inner !== null && typeof inner === "object" ? ": " : " = "}${phrase(inner)}`).join("; ");
}

// Try an order, show what it would do, and do it if that is wanted; true: it was done. `send` takes
// whether it is a dry run. What the broker refuses is thrown in its words.
export async function carriedOut(title, go, send) {
  const plan = await send(true);
  if (plan.changed === false) {
    say("nothing would change: it is so already");
    return false;
  }
  const details = Object.entries(plan.details ?? plan).filter(([name]) => name !== "dry_run").map(([name, value]) => [name.replaceAll("_", " "), phrase(value)]);
  if (!(await confirmed(title, go, element("p", {}, "This was tried, and would do:"), terms(details)))) return false;
  await send(false);
  say("done");
  return true;
}

// Arguments as lines, `name = value`: JSON where it is some, else a text.
export const linesOf = (values) =>
  Object.entries(values).map(([name, value]) => `${name} = ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n");

export function valuesOf(lines) {
  return Object.fromEntries(lines.split("\n").filter((line) => line.trim()).map((line) => {
    const [name, ...rest] = line.split("=");
    if (!rest.length) throw new Error(`${line.trim()}: write name = value`);
    const text = rest.join("=").trim();
    try {
      return [name.trim(), JSON.parse(text)];
    } catch {
      return [name.trim(), text];
    }
  }));
}
