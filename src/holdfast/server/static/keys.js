// The keyboard: keys do nothing in fields, and none of them acts without a dialog.

import { h } from "./dom.js";
import { hasDialog, openDialog } from "./ui.js";

export const KEYS = [
	["Go", [["/", "search"], ["g o", "overview"], ["g r", "runs"], ["g q", "questions"], ["g d", "in doubt"], ["u", "back"]]],
	["Lists", [["j k", "next, previous"], ["Enter", "open"], ["x", "select"], ["s", "save the view"]]],
	["A run", [["a", "answer or settle"], ["p", "pause"], ["r", "resume or retry"], ["c", "cancel"], ["f", "fork"], ["[ ]", "tabs"], ["y", "copy the command"]]],
	["Timeline", [["j k", "next, previous call"], ["← →", "fold, unfold"], ["n N", "next, previous trouble"], ["+ -", "closer, further"], ["z", "fit"]]],
	["Anywhere", [["?", "these keys"], ["Esc", "close, let go"]]],
];

export function showKeys() {
	openDialog("Keys", "info", (update, close) => [
		h("div.keys",
			KEYS.map(([title, keys]) => h("section", h("h3", title), h("dl", keys.map(([key, about]) => h("div", h("dt", key.split(" ").map((each) => h("kbd", each))), h("dd", about)))))),
		),
		h("footer", h("button.button", { autofocus: "", click: close }, "Close")),
	]);
}

function isTyping(target) {
	return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName ?? "") && !/^(checkbox|radio|button)$/.test(target.type);
}

/** Listen; `find(key)` is what the page, or the shell, does. */
export function startKeys(find) {
	let prefix = "";
	let timer = 0;
	document.addEventListener("keydown", (event) => {
		if (event.ctrlKey || event.metaKey || event.altKey || hasDialog() || event.defaultPrevented) return;
		if (isTyping(event.target)) {
			if (event.key === "Escape") event.target.blur();
			return;
		}
		const key = prefix ? `${prefix} ${event.key}` : event.key;
		clearTimeout(timer);
		prefix = "";
		if (key === "g") {
			prefix = "g";
			timer = setTimeout(() => (prefix = ""), 1200);
			return;
		}
		const act = find(key);
		if (!act) return;
		event.preventDefault();
		act(event);
	});
}

export function moveRow(step, root = document) {
	const rows = [...root.querySelectorAll("[data-row]")];
	if (!rows.length) return;
	const here = rows.indexOf(document.activeElement?.closest?.("[data-row]"));
	const next = rows[here < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, here + step))];
	next.focus();
	next.scrollIntoView({ block: "nearest" });
}

export function openRow() {
	const row = document.activeElement?.closest?.("[data-row]");
	(row?.querySelector(".does a") ?? row?.querySelector("a[href]") ?? row)?.click();
}
