// Stored values, as text. They may be anything: what is shown is bounded in lines, depth and length, and never parsed
// into objects, so that nothing in them can cost more than its length.

import { clean, h } from "./dom.js";
import { button, copy, iconButton } from "./ui.js";
import { bytes } from "./words.js";

const LINES = 60;
const LONGEST = 4000;
const DEEPEST = 40;
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[[\]{},:]|[^\s]/gs;

/** JSON text in lines of tokens: [depth, [[kind, text], …]]. */
export function linesOf(text, most = LINES) {
	const lines = [];
	let line = [];
	let depth = 0;
	const end = () => {
		lines.push([Math.min(depth, DEEPEST), line]);
		line = [];
	};
	TOKEN.lastIndex = 0;
	let found;
	let former = "";
	while ((found = TOKEN.exec(text)) && lines.length <= most) {
		const token = found[0];
		if (token === "{" || token === "[") {
			line.push(["mark", token]);
			const next = text[TOKEN.lastIndex];
			if (next !== "}" && next !== "]") {
				end();
				depth += 1;
			}
		} else if (token === "}" || token === "]") {
			if (former !== "{" && former !== "[") {
				end();
				depth = Math.max(0, depth - 1);
			}
			line.push(["mark", token]);
		} else if (token === ",") {
			line.push(["mark", ","]);
			end();
		} else if (token === ":") line.push(["mark", ": "]);
		else if (token[0] === '"') {
			const isName = /^\s*:/.test(text.slice(TOKEN.lastIndex, TOKEN.lastIndex + 20));
			line.push([isName ? "name" : "text", token]);
		} else line.push([/^[-\d]/.test(token) ? "number" : "word", token]);
		former = token;
	}
	if (line.length) end();
	return { lines: lines.slice(0, most), isCut: lines.length > most || Boolean(found) };
}

/** Text of a JSON string, if the whole of it is an address of the web. */
function address(token) {
	if (!/^"https?:\/\/[\x21-\x7e]{3,500}"$/.test(token)) return null;
	try {
		const url = new URL(JSON.parse(token));
		return url.username || url.password ? null : url.href;
	} catch {
		return null;
	}
}

/** A string as people write it: letters instead of their escapes. */
function readable(token) {
	if (!token.includes("\\u")) return token;
	try {
		return JSON.stringify(JSON.parse(token));
	} catch {
		return token;
	}
}

function tokenNode([kind, token]) {
	const shown = token.length > LONGEST ? `${token.slice(0, LONGEST)}… (${bytes(token.length)})` : readable(token);
	const url = kind === "text" ? address(token) : null;
	if (url) return h("a.j-text", { href: url, target: "_blank", rel: "noopener noreferrer" }, shown);
	return kind === "mark" ? shown : h("span", { class: `j-${kind}` }, shown);
}

/** A value with its heading. `value` is {json, truncated}; `where` is a link to all of it. */
export function valueView(title, value, { where = null, isLong = false, of = "" } = {}) {
	if (!value) return null;
	const text = value.json;
	const box = h("pre.json", { tabindex: "0", role: "region", label: of ? `${title}, ${of}` : title, own: true });
	const draw = (most) => {
		const { lines, isCut } = linesOf(text, most);
		box.replaceChildren(
			...lines.flatMap(([depth, tokens]) => ["\n", "  ".repeat(depth), ...tokens.map(tokenNode)].map((each) => (each instanceof Node ? each : document.createTextNode(clean(each))))).slice(1),
		);
		if (isCut) box.append("\n", button("Show more", () => draw(most * 8), { kind: "small" }));
	};
	if (text === null || text === undefined) box.append("It is large, and stored apart.");
	else draw(isLong ? LINES * 4 : LINES);
	return h("section.value", { key: `${title}-${hashed(text ?? "")}` },
		h("header",
			h("h3", title),
			value.truncated && h("span.quiet", "cut"),
			where && value.truncated ? h("a.icon-button", { href: where, download: "", title: "Download all of it", label: `Download all of ${title.toLowerCase()}` }, "↓") : null,
			text ? iconButton("copy", `Copy ${title.toLowerCase()}`, () => copy(text)) : null,
		),
		box,
	);
}

/** Changes when the text does. */
function hashed(text) {
	let found = text.length;
	for (let at = 0; at < Math.min(text.length, 4000); at += 1) found = (found * 31 + text.charCodeAt(at)) | 0;
	return found;
}

/** What a question shows, as a table: nested one level, texts as texts. */
export function showTable(text) {
	let value;
	try {
		value = text.length > 64_000 ? undefined : JSON.parse(text);
	} catch {
		value = undefined;
	}
	if (value === undefined) return valueView("Shown", { json: text, truncated: true });
	if (value === null || value === "") return null;
	if (typeof value !== "object") return h("div.shown", h("p.prose", plainText(value)));
	return h("dl.shown", Object.entries(value).slice(0, 200).map(([name, each]) => h("div", { key: name }, h("dt", name.slice(0, 200)), h("dd", inner(each)))));
}

function inner(value) {
	if (value === null || typeof value !== "object") return h("span.prose", plainText(value));
	if (Array.isArray(value)) return h("span.prose", value.slice(0, 50).map(plainText).join("; "));
	return Object.entries(value).slice(0, 50).map(([name, each]) => h("span.pair", { key: name }, h("b", name.slice(0, 200)), " ", plainText(each)));
}

function plainText(value) {
	if (typeof value === "string") return value.slice(0, 20_000);
	if (value !== null && typeof value === "object") {
		if (Array.isArray(value) && value.every((each) => each === null || typeof each !== "object")) return value.slice(0, 50).map(String).join("; ");
		try {
			return JSON.stringify(value).slice(0, 2000);
		} catch {
			return "(nested too deep)";
		}
	}
	return String(value);
}
