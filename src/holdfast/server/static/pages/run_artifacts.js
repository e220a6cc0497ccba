// What a run has put out: whether its bytes are intact, what they say, and what differs from the version before.

import { at, brief, button, bytes, chip, clean, clock, empty, get, h, link, openDialog, Problem, quiet, skeleton, table, to, trouble } from "../kit.js";

const MOST = 256_000; // bytes that are read to be looked at
const LINES = 1500; // of two versions that are compared
const PICTURE = /^image\/(png|jpeg|gif|webp)$/;
const TEXT = /^text\/|json|xml|yaml|toml|javascript|^$/;
const COLUMNS = ["Name", "Version", "Type", { name: "Size", kind: "num" }, "Made by", "Stored", "SHA-256", { name: "", kind: "acts" }];

export function artifacts(page, path) {
	const own = { items: null, next: null, isChecked: false, isBusy: false };
	const read = async (check = false) => {
		const found = await get(`${path}/artifacts`, { check: check || null });
		Object.assign(own, { items: found.items, next: found.next, isChecked: found.is_checked });
	};
	const check = async () => {
		own.isBusy = true;
		page.update();
		await read(true).catch(() => null);
		own.isBusy = false;
		page.update();
	};
	const draw = (run) => {
		if (!own.items) return skeleton(4);
		if (!own.items.length) return empty("info", "Nothing yet", "Files, links and memory that it puts out are listed here.");
		return h("div",
			table("Artifacts", COLUMNS, own.items.map((each, n) => row(path, run, each, n, own.isChecked)), { kind: "plain" }),
			h("div.foot.row.wrap", button(own.isBusy ? "Reading…" : own.isChecked ? "Check again" : "Check every byte", check, { kind: "small", glyph: "shield", isOff: own.isBusy }), quiet(own.isChecked ? "What is stored was compared with its digests." : "Sizes and digests are those of the journal."), own.next === null ? null : quiet("There are more; the command lists all of them.")),
		);
	};
	return {
		read,
		draw,
		get items() {
			return own.items;
		},
	};
}

function row(path, run, each, n, isChecked) {
	const hasBytes = each.size !== null && each.kind !== "workspace" && each.state === "stored";
	const where = link(`${path}/artifacts${at(each.name)}`, { version: each.version });
	const canLook = hasBytes && (PICTURE.test(each.media_type) || (TEXT.test(each.media_type) && each.size <= MOST));
	const former = each.version > 1 && canLook && !PICTURE.test(each.media_type) ? link(`${path}/artifacts${at(each.name)}`, { version: each.version - 1 }) : null;
	const state = each.state !== "stored" ? chip("quarantined", each.state) : each.size === null ? "" : isChecked ? chip("done", "intact") : quiet("stored");
	return {
		key: String(n),
		cells: [
			h("span.two", canLook ? h("button.name", { click: () => look(each, where) }, brief(each.name, 120)) : h("strong", brief(each.name, 120)), each.ref || each.detail ? quiet(brief(each.ref || each.detail, 200)) : null),
			former ? h("button.name", { title: "What differs from the version before", click: () => look(each, where, former) }, `v${each.version}, difference`) : `v${each.version}`,
			h("span.cut", brief(each.media_type || each.kind, 40)),
			each.size === null ? "" : bytes(each.size),
			each.key ? h("a.mono", { href: to("runs", run.id, { call: each.key }) }, brief(each.key, 60)) : quiet(each.at ? clock(each.at) : ""),
			state,
			each.sha256 ? h("span.mono.quiet", { title: each.sha256 }, `${each.sha256.slice(0, 8)}…`) : "",
			hasBytes ? h("a.button.small", { href: where, download: "", label: `Download ${brief(each.name, 80)}` }, "Download") : "",
		],
	};
}

/** The bytes as text or picture, or what differs from former ones. Nothing of it is executed. */
function look(each, where, former = null) {
	const state = { text: null, problem: null };
	const text = async (address) => {
		const answer = await fetch(address);
		if (!answer.ok) throw new Problem(answer.status, { title: "Its bytes cannot be read", ...(await answer.json().catch(() => ({}))) });
		return answer.text();
	};
	const dialog = openDialog(`${brief(each.name, 80)}, version ${each.version}`, "info", (update, close) => [
		state.problem ? trouble(state.problem) : PICTURE.test(each.media_type) ? h("img.picture", { src: where, alt: brief(each.name, 120) }) : state.text === null ? skeleton(4) : former ? h("pre.json.diff", { tabindex: "0" }, state.text) : h("pre.json", { tabindex: "0" }, clean(state.text)),
		h("footer", h("a.button", { href: where, download: "" }, "Download"), button("Close", close, { kind: "primary" })),
	], { kind: "wide" });
	if (PICTURE.test(each.media_type)) return;
	Promise.all([text(where), former && text(former)])
		.then(([now, before]) => (state.text = former ? linesThatDiffer(before, now) : now), (problem) => (state.problem = problem))
		.then(() => dialog.update());
}

/** Lines of two texts: what was taken away and added, with two lines around. */
function linesThatDiffer(before, after) {
	const [a, b] = [before, after].map((text) => text.split("\n").slice(0, LINES));
	const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
	for (let i = a.length - 1; i >= 0; i -= 1) for (let j = b.length - 1; j >= 0; j -= 1) longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
	const lines = [];
	for (let i = 0, j = 0; i < a.length || j < b.length; ) {
		if (i < a.length && j < b.length && a[i] === b[j]) lines.push(["same", a[i++]]), (j += 1);
		else if (j >= b.length || (i < a.length && longest[i + 1][j] >= longest[i][j + 1])) lines.push(["del", a[i++]]);
		else lines.push(["ins", b[j++]]);
	}
	const isNear = (n) => lines.slice(Math.max(0, n - 2), n + 3).some(([kind]) => kind !== "same");
	return lines.flatMap(([kind, line], n) => (isNear(n) ? h(kind === "same" ? "span" : kind, `${line}\n`) : isNear(n - 1) ? h("span.quiet", "…\n") : []));
}
