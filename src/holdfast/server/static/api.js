// The API: reading, acting, and what is refused.

/** Where the app is mounted; the files stand below /static/DIGEST/. */
export const BASE = new URL("../../", import.meta.url).pathname.replace(/\/$/, "");
const API = `${BASE}/api/v1`;

/** A refusal, as the server told it; `status` 0: it could not be reached. */
export class Problem extends Error {
	constructor(status, told) {
		super(told.detail || told.title || "The server could not be reached.");
		this.status = status;
		this.told = told;
		this.kind = String(told.type ?? "").replace("/problems/", "") || (status ? "other" : "away");
		this.title = told.title ?? "Not reached";
	}
}

let onSignIn = () => {};
let known = ""; // the token, as long as the tab lives: a server that was started anew knows no session of before
let renewing = null;

export function whenSignedOut(act) {
	onSignIn = act;
}

async function ask(method, path, options = {}) {
	try {
		return await once(method, path, options);
	} catch (problem) {
		if (problem.status !== 401 || path === `${BASE}/session`) throw problem;
		if (await renew()) return once(method, path, options);
		onSignIn(problem);
		throw problem;
	}
}

/** Sign in again with the token that the tab has; false if it has none, or if that is not taken. */
export function renew() {
	renewing ??= (async () => {
		try {
			if (known) await signIn(known);
			else await whoAmI(); // another tab may have done it
			return true;
		} catch {
			return false;
		} finally {
			setTimeout(() => (renewing = null), 1000);
		}
	})();
	return renewing;
}

async function once(method, path, { body, key, signal, headers } = {}) {
	let answer;
	try {
		answer = await fetch(path, {
			method,
			signal,
			credentials: "same-origin",
			cache: "no-store",
			headers: {
				Accept: "application/json",
				"X-Holdfast": "1",
				...(body === undefined ? {} : { "Content-Type": "application/json" }),
				...(key ? { "Idempotency-Key": key } : {}),
				...headers,
			},
			body: body === undefined ? undefined : JSON.stringify(body),
		});
	} catch (error) {
		if (error.name === "AbortError") throw error;
		throw new Problem(0, {});
	}
	const text = await answer.text();
	let told = {};
	try {
		told = text ? JSON.parse(text) : {};
	} catch {
		told = { title: `The server answered ${answer.status}` };
	}
	if (answer.ok) return told;
	throw new Problem(answer.status, told);
}

/** Parts of a path, each percent-encoded: ids may have slashes in them. */
export function at(...parts) {
	return parts.map((part) => `/${encodeURIComponent(part)}`).join("");
}

export function query(given) {
	const found = new URLSearchParams();
	for (const [name, value] of Object.entries(given ?? {})) {
		for (const each of Array.isArray(value) ? value : [value]) {
			if (each !== null && each !== undefined && each !== "") found.append(name, each);
		}
	}
	const text = found.toString();
	return text ? `?${text}` : "";
}

export function get(path, given, options = {}) {
	return ask("GET", `${API}${path}${query(given)}`, options);
}

/** Something that changes: the key makes a repetition harmless. */
export function post(path, body = {}, key = newKey()) {
	return ask("POST", `${API}${path}`, { body, key });
}

export function newKey() {
	return `web-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
}

export function link(path, given) {
	return `${API}${path}${query(given)}`;
}

// the session

export async function signIn(token) {
	const person = await ask("POST", `${BASE}/session`, { body: { token } });
	known = token;
	return person;
}

export function whoAmI() {
	return ask("GET", `${BASE}/session`);
}
