// In doubt: effects that may or may not have happened, with what is known, and what a person says.

import { at, attempt, brief, chip, choiceOf, clock, command, commandLine, copy, emptyCard, entry, facts, field, get, h, head, iconButton, length, mayAct, newKey, post, quiet, say, shown, steps, to, trouble, valueView, when } from "../kit.js";

export const CAUSES = { crash: "its process died", exception: "it raised an error that proves nothing", timeout: "it took too long", cancelled: "it was cut short" };

export function doubts(page) {
	const one = page.params.get("run");
	const reading = page.read("/in-doubt", one ? { run: one } : null, ["run"]);
	const cards = new Map();
	const evidence = new Map();
	const know = (doubt) => {
		const name = `${doubt.run_id} ${doubt.key}`;
		if (evidence.has(name)) return evidence.get(name);
		evidence.set(name, null);
		Promise.all([get(`/runs${at(doubt.run_id)}/calls${at(doubt.key)}`), get(`/runs${at(doubt.run_id)}`)]).then(([call, run]) => (evidence.set(name, { call, run }), page.update()), () => {});
		return null;
	};
	const draw = (data) => {
		if (!data.items.length) return emptyCard("done", "Nothing is in doubt", one ? `Of ${brief(one, 80)}. ` : "An effect that was cut off, and that no verify can tell of, appears here.", one && h("a.button", { href: to("in-doubt") }, "All effects in doubt"));
		return data.items.map((doubt) => {
			const name = `${doubt.run_id} ${doubt.key} ${doubt.attempt}`;
			if (!cards.has(name)) cards.set(name, { choice: null, value: "", error: "", note: "", problem: null, isBusy: false, key: newKey() });
			return drawCard(page, doubt, cards.get(name), know(doubt), reading);
		});
	};
	return {
		title: () => "In doubt",
		draw: () => [head("In doubt", "Effects that may or may not have happened. Each holds its own branch; nothing repeats it before somebody, or its own verify, says what became of it."), shown(reading, draw)],
	};
}

function drawCard(page, doubt, state, known, reading) {
	const why = page.shell.whyNot;
	const update = () => page.update();
	const parsed = json(state.value);
	const missing = !state.choice ? "Choose what became of it." : state.choice === "happened" && parsed === undefined ? "Its result is needed, as JSON." : state.choice === "failed" && !state.error.trim() ? "Say what the agent is told." : !state.note.trim() ? "Say how you know." : null;
	const send = async () => {
		const body = { verdict: state.choice, attempt: doubt.attempt, note: state.note, ...(state.choice === "happened" ? { value: parsed } : {}), ...(state.choice === "failed" ? { error: state.error } : {}) };
		await post(`/runs${at(doubt.run_id)}/in-doubt${at(doubt.key)}`, body, state.key);
		say(`${doubt.key} of ${doubt.run_id} is settled.`);
	};
	const settle = () => !missing && mayAct(page.shell) && attempt(state, update, send).then(() => reading.again());
	const choices = [
		["happened", "It happened", "The call ends with the result below; it is not repeated"],
		["not_happened", "It did not happen", "A new attempt begins, under the same idempotency key"],
		["failed", "Fail the call", "The agent gets an error and decides"],
	];
	return h("section.card.doubt-card", { key: `${doubt.run_id} ${doubt.key}` },
		h("header.row.wrap", chip("in_doubt"), h("h2", brief(doubt.key, 120)), h("a.mono", { href: to("runs", doubt.run_id, { call: doubt.key }) }, brief(doubt.run_id, 80)), known && quiet(brief(known.run.agent, 60)), h("span.grow"), quiet(when(doubt.since))),
		h("div.halves",
			h("div.half",
				steps(came(doubt, known)),
				valueView("What was sent", doubt.args_json === null ? null : { json: doubt.args_json, truncated: doubt.truncated }, { of: `${doubt.key} of ${doubt.run_id}` }) ?? h("p.nothing", "What was sent is not shown to your role."),
				facts([["attempt", String(doubt.attempt)], ["look for", h("span.mono", brief(doubt.idempotency_key, 120), iconButton("copy", "Copy the idempotency key", () => copy(doubt.idempotency_key, "Key copied.")))]]),
			),
			h("form.half", { label: `Settle ${brief(doubt.key, 80)} of ${brief(doubt.run_id, 80)}`, on: { submit: (event) => (event.preventDefault(), settle()) } },
				h("fieldset.choices", h("legend", "What became of it?"), choices.map(([value, word, about]) => choiceOf(`v-${doubt.run_id}-${doubt.key}`, { value, word, about }, state.choice, (choice) => ((state.choice = choice), update())))),
				state.choice === "happened" ? field("Its result, as JSON", entry(state, "value", update, { maxlength: null, class: "mono", spellcheck: "false", placeholder: '"a text needs quotes"', "aria-invalid": Boolean(state.value && parsed === undefined) }), state.value && parsed === undefined ? h("small.error", 'This is no JSON: a text needs quotes, as "ch_1".') : null) : null,
				state.choice === "failed" ? field("What the agent is told", entry(state, "error", update)) : null,
				field("How do you know?", entry(state, "note", update, { placeholder: "Kept in the journal with your name" })),
				state.problem && trouble(state.problem),
				h("div.row.wrap", h("button", { type: "submit", class: "button primary", disabled: Boolean(missing || why || state.isBusy), title: why ?? missing }, "Settle"), quiet(why ?? missing ?? "final, and recorded")),
				commandLine(resolveCommand(doubt, state)),
			),
		),
	);
}

function json(text) {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

function came(doubt, known) {
	const since = clock(doubt.since, { withMs: true });
	if (!known) return [{ glyph: "effect", text: "Intent on disk, then the body began", at: since }, { glyph: "in_doubt", kind: "doubt", text: `In doubt: ${CAUSES[doubt.cause] ?? brief(doubt.cause, 120)}`, at: "" }];
	const { call, run } = known;
	const intent = call.records.find((each) => each.kind === "intent");
	const began = new Date(intent?.at ?? doubt.since).getTime();
	const receipt = run.receipts.find((each) => each.lost && new Date(each.at).getTime() > began);
	const held = call.records.find((each) => each.name === "held");
	return [
		{ glyph: "effect", text: "Intent on disk, then the body began", at: clock(intent?.at ?? doubt.since, { withMs: true }) },
		receipt ? { glyph: "cut_off", kind: "bad", text: `Process ${brief(receipt.lost, 9)} lost${receipt.proof === "lock" ? ": its lock is free" : ""}. No outcome was recorded`, at: `after ${clock(doubt.since, { withMs: true })}` } : { glyph: "failed", kind: "bad", text: `No outcome is known: ${CAUSES[doubt.cause] ?? brief(doubt.cause, 200)}`, at: since },
		receipt ? { glyph: "back", text: `Worker ${brief(receipt.worker, 9)} took the run over`, at: clock(receipt.at, { withMs: true }) } : null,
		...call.settlements.map((each) => ({ glyph: "shield", text: `${each.by === "verify" ? "verify said" : `${brief(each.by ?? "somebody", 40)} said`}: ${brief(each.verdict, 60)}`, at: clock(each.at, { withMs: true }) })),
		call.settlements.length ? null : { glyph: "shield", text: `${brief(call.name, 60)}: no verify could tell; its rule is to ask a person`, at: held ? clock(held.at, { withMs: true }) : "" },
		{ glyph: "in_doubt", kind: "doubt", text: "Waits for you", at: length((Date.now() - new Date(held?.at ?? receipt?.at ?? doubt.since)) / 1000) },
	];
}

function resolveCommand(doubt, state) {
	const how = { happened: ["--happened", state.value || "JSON"], not_happened: ["--not-happened"], failed: ["--fail", state.error || "MESSAGE"] }[state.choice];
	const base = command("resolve", doubt.run_id, doubt.key, how ?? []);
	return how ? `${base}${state.note ? ` ${command("--note", state.note).slice(9)}` : ""}` : `${base} …`;
}
