// Sends requests to the collector, with the token. The token is in the fragment of the address, which
// browsers never send, and is stored only for this tab.

const KEPT = "xpu-top-token";
let token = null;

export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    useToken(given);
    // The token must appear neither in the history nor in a copied address.
    history.replaceState(null, "", location.pathname + location.search);
  } else {
    try { token = sessionStorage.getItem(KEPT); } catch { token = null; }
  }
}

export function useToken(given) {
  token = given.trim();
  try { sessionStorage.setItem(KEPT, token); } catch { /* Without storage, the token is kept until the page is closed. */ }
}

/** A refused request: the status, the error, and what to do next. */
export class Refusal extends Error {
  constructor(status, body) {
    super(body.error ?? `HTTP ${status}`);
    this.status = status;
    this.next = body.next ?? "";
  }
}

export async function ask(path, { body, signal } = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  if (!answer.ok) throw new Refusal(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

export const json = async (path, options) => (await ask(path, options)).json();
