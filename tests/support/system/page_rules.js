// What breaks the rules of a page for whoever has no mouse, or does not see it; the value of this
// expression is a list of texts.
(() => {
  const LEAST_CONTRAST = 4.5;  // of a text to its ground: WCAG 2, level AA
  const all = (chosen) => [...document.querySelectorAll(chosen)];
  const isShown = (each) => each.checkVisibility({ checkVisibilityCSS: true });
  const told = (each) => each.outerHTML.slice(0, 80);
  const found = [];

  function check(chosen, rule, isRight) {
    for (const each of all(chosen)) {
      if (isShown(each) && !isRight(each)) found.push(`${rule}: ${told(each)}`);
    }
  }

  const hasWords = (each) => ["img", "group"].includes(each.getAttribute("role"))
    && each.getAttribute("aria-labelledby").split(" ").every((id) => document.getElementById(id).textContent);
  const name = (each) => (each.getAttribute("aria-label") ?? each.textContent).trim();
  check("input, select, textarea", "no label", (each) => each.labels.length || each.hasAttribute("aria-label"));
  check("button, a, table, dialog", "no name", (each) => name(each) || each.hasAttribute("aria-labelledby"));
  check("table", "no caption", (each) => each.hasAttribute("aria-label"));
  check("th", "no scope, or no text", (each) => each.scope && each.textContent);
  check("img", "no alt", (each) => each.hasAttribute("alt"));
  check("svg", "no words", (each) => each.getAttribute("aria-hidden") === "true" || hasWords(each));
  const ids = all("[id]").map((each) => each.id);
  if (new Set(ids).size !== ids.length) found.push(`an id is there twice: ${ids}`);
  if (all("main h1").length !== 1) found.push("not one heading");
  if (!document.documentElement.lang) found.push("no language");
  if (document.documentElement.scrollWidth > innerWidth) found.push("wider than the window");

  // Contrast as WCAG 2 computes it.
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const light = (colour) => parts(colour).slice(0, 3)
    .reduce((sum, part, at) => sum + linear(part / 255) * [0.2126, 0.7152, 0.0722][at], 0);
  function ground(each) {
    const colour = getComputedStyle(each).backgroundColor;
    return parts(colour)[3] === 0 && each.parentElement ? ground(each.parentElement) : colour;
  }
  for (const each of all("body *:not(title, desc, option, noscript)")) {
    const isText = [...each.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!isText || !isShown(each) || each.disabled) continue;
    const style = getComputedStyle(each);
    const [one, other] = [each.matches("svg *") ? style.fill : style.color, ground(each)].map(light);
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < LEAST_CONTRAST) found.push(`contrast ${contrast.toFixed(1)}: ${told(each)}`);
  }
  return found;
})()
