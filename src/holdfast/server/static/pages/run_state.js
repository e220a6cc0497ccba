// The states of a run's turns: one of them, and what differs from any other.

import { brief, button, bytes, clock, empty, get, h, link, quiet, segments, skeleton, valueView } from "../kit.js";
import { forkDialog } from "./forking.js";

const LISTED = 200; // with more turns than these there is the slider alone

export function states(page, path) {
	const own = { turns: 0, turn: 0, other: null, state: null, changes: null, heads: [], isWhole: false };
	let asked = 0;

	/** The newest state has come; who looks at the last one goes on looking at the last one. */
	const newest = async (state) => {
		const isLast = own.turn === own.turns;
		if (own.turns !== state.turn && state.turn <= LISTED) own.heads = (await get(`${path}/checkpoints`, { limit: LISTED })).items;
		own.turns = state.turn;
		if (isLast) await choose(state.turn, state);
	};
	const choose = async (turn, known = null) => {
		own.turn = turn;
		const mine = ++asked;
		const other = own.other ?? turn - 1;
		const [state, told] = await Promise.all([known ?? get(`${path}/state`, { turn }), other && other !== turn ? get(`${path}/diff`, { a: other, b: turn }) : null]);
		if (mine !== asked) return; // another turn was chosen meanwhile
		[own.state, own.changes] = [state, told];
		page.update();
	};
	const draw = (run, failed) => {
		const { turn, turns, state, changes, isWhole } = own;
		if (!state) return turns ? skeleton(4) : empty("info", "No turns", "Its agent has not come to a loop of turns.");
		const pick = (chosen) => choose(chosen).catch(failed);
		const against = (event) => {
			own.other = Number(event.target.value) || null;
			pick(turn);
		};
		return h("div.states",
			own.heads.length > 1
				? h("ol.heads", { label: "Turns" }, own.heads.map((each) => h("li", { key: String(each.turn) }, h("button", { "aria-current": each.turn === turn, click: () => pick(each.turn) }, h("b", `turn ${each.turn}`), h("span.quiet.num", clock(each.at)), h("span.quiet.num.end", bytes(each.size))))))
				: null,
			h("div.state",
				h("div.state-bar.row.wrap",
					h("strong", `Turn ${turn} of ${turns}`), quiet(clock(state.at, { withDate: true })), h("span.grow"),
					segments("Show", [["changes", "differences"], ["whole", "whole state"]], isWhole ? "whole" : "changes", (shown) => ((own.isWhole = shown === "whole"), page.update())),
					page.shell.whyNot ? null : button("Fork with another state…", () => forkDialog(page.shell, run, { turn, turns }), { glyph: "fork", kind: "small" }),
				),
				turns > 1 ? h("input", { type: "range", min: "1", max: String(turns), value: String(turn), label: "Turn", on: { input: (event) => pick(Number(event.target.value)) } }) : null,
				isWhole || !changes ? null : h("label.row.versus", "Differences to turn", h("input", { class: "narrow", inputmode: "numeric", value: String(changes.a), on: { change: against } })),
				isWhole || !changes ? valueView("State", state.state, { where: link(`${path}/payload`, { seq: state.state.seq, part: state.state.part }), isLong: true }) : differences(changes),
			),
		);
	};
	return {
		newest,
		draw,
		get turns() {
			return own.turns;
		},
	};
}

function differences({ items, truncated }) {
	if (!items.length) return h("p.nothing", "It is the same state.");
	const line = (kind, text) => text !== null && h(kind, brief(text, 4000));
	return h("ul.diff", { label: "What differs" },
		items.map((each) => h("li", { key: each.path }, h("span.mono.quiet", brief(each.path || "(all)", 200)), line("del", each.before_json), line("ins", each.after_json))),
		truncated ? h("li.quiet", "There are more than these.") : null,
	);
}
