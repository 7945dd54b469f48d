// A list that an endpoint answers some rows at a time. Its address keeps the page, so that it can be
// sent to a colleague.

import { keep, offsetOf } from "./address.js";
import { pager } from "./elements.js";
import { get } from "./requests.js";

const LIMIT = 100;

// `fill(rows)` shows a page. `asked()` is what the endpoint is asked beside the place; the address
// keeps that, too, and what is `opened()` beside the list.
export function pagedList(query, path, fill, asked = () => ({}), opened = () => ({})) {
  let offset = offsetOf(query);
  const pages = pager(LIMIT, go);

  async function look() {
    const page = await get(path, { ...asked(), limit: LIMIT, offset });
    fill(page.items);
    pages.at(page, page.items.length);
  }

  async function go(to) {
    offset = Math.max(0, to);
    kept();
    await look();
  }

  function kept() {
    keep({ ...asked(), offset, ...opened() });
  }

  return { look, go, kept, whole: pages.whole };
}
