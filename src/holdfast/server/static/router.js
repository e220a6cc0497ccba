// Which page an address is, and going from one to another.

import { BASE } from "./api.js";

let show = () => {};

/** The parts of an address below where the console is mounted. */
export function place(url = location) {
	const path = url.pathname.startsWith(BASE) ? url.pathname.slice(BASE.length) : url.pathname;
	const parts = path.split("/").filter(Boolean).map(decoded);
	return { parts, params: new URLSearchParams(url.search) };
}

function decoded(part) {
	try {
		return decodeURIComponent(part);
	} catch {
		return part;
	}
}

export function to(...parts) {
	const last = parts.at(-1);
	const params = last !== null && typeof last === "object" ? parts.pop() : null;
	const search = params ? new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "")).toString() : "";
	return `${BASE}/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(address) {
	remember();
	history.pushState({}, "", address);
	show({ scroll: 0 });
}

/** Another address of the same page: Back does not stop at each letter of a filter. */
export function revise(address) {
	history.replaceState(history.state, "", address);
}

function remember() {
	history.replaceState({ ...history.state, scroll: scrollY }, "");
}

/** Have links lead to pages without loading them anew. */
export function startRouter(showPage) {
	show = showPage;
	history.scrollRestoration = "manual";
	addEventListener("popstate", () => show({ scroll: history.state?.scroll ?? 0 }));
	addEventListener("pagehide", remember);
	document.addEventListener("click", (event) => {
		const link = event.target.closest?.("a[href]");
		if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
		if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
		if (!link.pathname.startsWith(`${BASE}/`) || link.pathname.startsWith(`${BASE}/api/`)) return;
		event.preventDefault();
		go(link.pathname + link.search);
	});
}
