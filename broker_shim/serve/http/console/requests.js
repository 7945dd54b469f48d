// Requests to the port that served this page. The browser sends the login by itself.

const API = "/api/v1/";

const asking = (path, query) => path + `?${new URLSearchParams(query)}`.replace(/\?$/, "");

export const get = (path, query = {}) => ask(asking(path, query));

export const remove = (path, query = {}) => ask(asking(path, query), { method: "DELETE" });

const sending = (method) => async (path, body) => {
  const headers = { "Content-Type": "application/json" };
  return ask(path, { method, headers, body: JSON.stringify(body) });
};

export const [post, put, patch] = ["POST", "PUT", "PATCH"].map(sending);

export const queuePath = (name, more = "") => `queues/${encodeURIComponent(name)}${more}`;

// A whole number that is too large for JavaScript stays the text that came, where the browser has it.
const exact = (_name, value, said) =>
  (Number.isInteger(value) && !Number.isSafeInteger(value) ? said?.source ?? value : value);

// The broker gave no answer of its own: it may come back.
export class BrokerAway extends Error {}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(API + path, options);
  } catch {
    throw new BrokerAway("the broker does not answer: look whether it runs. This page asks it again");
  }
  let told;
  try {
    told = JSON.parse(await response.text(), exact);
  } catch {
    throw new BrokerAway(`the broker answered ${response.status}: look whether it runs`);
  }
  if (!response.ok) throw Object.assign(new Error(told.error), { status: response.status });
  return told;
}
