// What people do to runs. Each act is a dialog that shows its command; each is recorded with who and why.

import { at, post } from "./api.js";
import { brief, h } from "./dom.js";
import { askAct, button, entry, field, say } from "./ui.js";
import { command, count, noted } from "./words.js";

/** Tell who may not act why; true if they may. */
export function mayAct(shell) {
	if (!shell.whyNot) return true;
	say(shell.whyNot, "bad");
	return false;
}

function simple(verb, glyph, text) {
	const word = verb[0].toUpperCase() + verb.slice(1);
	return (shell, run, done) =>
		mayAct(shell) &&
		askAct({
			title: `${word} ${brief(run.id, 60)}?`, glyph, confirm: `${word} the run`, text: text(run),
			command: ({ note }) => command(verb, run.id, noted(note)),
			act: ({ note }) => post(`/runs${at(run.id)}/${verb}`, { note }).then(done),
		});
}

export const pauseRun = simple("pause", "paused", () => "What is under way is finished first. It goes on where it was when it is resumed.");
export const resumeRun = simple("resume", "play", ({ status }) => (status === "blocked" ? "It tries again with the code that the workers have now. If that does not fit either, it is blocked again, and nothing is executed." : "A worker goes on where it was; what is in the journal is not done again."));
export const retryRun = simple("retry", "back", () => "What ended it is done anew; everything before it is kept.");

export function cancelRun(shell, run, done) {
	if (!mayAct(shell)) return;
	const happened = run.calls?.effects ?? 0;
	askAct({
		title: `Cancel ${brief(run.id, 60)}?`, glyph: "stop", confirm: "Cancel the run", isDanger: true,
		text: [
			"The agent hears of it at its next call and may clean up first. ",
			happened ? h("strong", `${count(happened, "effect")} ${happened === 1 ? "has" : "have"} happened`) : null,
			happened ? " and not undone by this, unless its code does." : null,
		],
		choices: [
			{ value: "ask", word: "Cancel", about: "It cleans up, its children too" },
			{ value: "kill", word: "End it at once", about: "No code of the agent runs any more" },
		],
		command: ({ note, choice }) => command("cancel", run.id, choice === "kill" && "--kill", noted(note)),
		act: ({ note, choice }) => post(`/runs${at(run.id)}/cancel`, { note, kill: choice === "kill" }).then(done),
	});
}

/** A button that pauses one of the schedules, triggers or queues, or resumes it; `texts` say what either means. */
export function turnButton(page, kind, each, texts, again, look = "small plain") {
	const word = each.paused ? "Resume" : "Pause";
	const verb = word.toLowerCase();
	const turn = () =>
		mayAct(page.shell) &&
		askAct({
			title: `${word} ${brief(each.name, 60)}?`, glyph: each.paused ? "play" : "paused", text: texts[verb], confirm: `${word} it`,
			command: ({ note }) => command(kind, verb, each.name, noted(note)),
			act: ({ note }) => post(`/${kind}${at(each.name)}/${verb}`, { note }).then((told) => (again(), told)),
		});
	return button(word, turn, { kind: look, isOff: Boolean(page.shell.whyNot), title: page.shell.whyNot });
}

export function changePlan(shell, run, item, done) {
	if (!mayAct(shell)) return;
	const given = { text: item?.text ?? "" };
	const way = (value, word, about) => ({ value, word, about });
	const ways = item && [item.done ? way("untick", "Not done", "It is to be done again") : way("tick", "Done", "The run goes on with the next one"), way("rewrite", "Rewrite", "It says what you write below"), way("drop", "Drop", "It is not to be done after all")];
	const opOf = ({ choice, note }) => (item ? { op: choice, id: item.id, ...(choice === "tick" ? { note } : choice === "rewrite" ? { text: given.text } : {}) } : { op: "add", text: given.text });
	askAct({
		title: item ? `Change item ${brief(item.id, 20)} of the plan?` : "Add to the plan?", glyph: "queue", confirm: "Send it", choices: ways,
		text: "The run has it with its next call of the plan; what it does meanwhile stays.",
		more: ({ choice }) => (!item || choice === "rewrite" ? field("Text", entry(given, "text", () => {}, { autofocus: !item })) : null),
		command: ({ note }) => command("plan", run.id, "--edit", noted(note)),
		act: (state) => post(`/runs${at(run.id)}/plan`, { ops: [opOf(state)], note: state.note }).then(() => (done(), { what: "sent" })),
	});
}

const VERBS = { pause: ["Pause", "paused"], resume: ["Resume", "play"], retry: ["Retry", "back"], cancel: ["Cancel", "stop"] };

/** The same act on many. `target` is {ids} or {filter, expected}; `done` gets the answer. */
export function actOnMany(shell, act, target, number, done) {
	if (!mayAct(shell)) return;
	const [verb, glyph] = VERBS[act];
	const filter = target.filter ?? {};
	const words = target.ids ? target.ids.slice(0, 20) : Object.entries(filter).flatMap(([name, value]) => [value].flat().filter(Boolean).flatMap((each) => [`--${name}`, each]));
	askAct({
		title: `${verb} ${count(number, "run")}?`, glyph, confirm: `${verb} ${count(number, "run")}`, isDanger: act === "cancel",
		text: target.ids ? `Each is told apart; what became of each is listed afterwards.` : `All that fit the filter now. If others fit by then, nothing is done.`,
		command: ({ note }) => (act === "retry" ? "" : command(act, words, noted(note))),
		act: ({ note }) => post("/runs/bulk", { act, note, ...target }).then((told) => (done(told), { what: count(told.items.length, "run") })),
	});
}
