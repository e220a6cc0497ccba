// Starting a run: an agent, and its arguments as JSON.

import { attempt, button, command, commandLine, entry, field, get, h, mayAct, newKey, noteField, openDialog, post, trouble } from "../kit.js";

export function startDialog(shell, done) {
	if (!mayAct(shell)) return;
	const state = { agents: null, agent: "", input: "{}", id: "", note: "", problem: null, isBusy: false, key: newKey() };
	const dialog = openDialog("Start a run", "play", (update, close) => {
		const read = () => {
			try {
				const value = JSON.parse(state.input || "{}");
				return value && typeof value === "object" && !Array.isArray(value) ? value : null;
			} catch {
				return null;
			}
		};
		const input = read();
		const go = () =>
			attempt(state, update, async () => {
				const run = await post("/runs", { agent: state.agent, input, note: state.note, ...(state.id ? { id: state.id } : {}) }, state.key);
				close();
				done(run);
			});
		const agent = state.agents?.find((each) => each.name === state.agent);
		return [
			field("Agent", entry(state, "agent", update, { list: "agents", autofocus: "" })),
			h("datalist", { id: "agents" }, (state.agents ?? []).map((each) => h("option", { key: each.name, value: each.name }))),
			field("Arguments, by name, as JSON", entry(state, "input", update, { rows: "4", class: "mono", spellcheck: "false", "aria-invalid": input ? null : "true" }), !input && h("small.error", "It takes a JSON object."), agent?.first && h("small", `Its first argument is ${agent.first}.`)),
			field("Id", entry(state, "id", update, { maxlength: "200", placeholder: "made up, if none is given" })),
			noteField(state, update, go, { isFirst: false }),
			commandLine(command("run", `FILE:${state.agent || "AGENT"}`, "--input", state.input.replace(/\s+/g, " "), state.id && ["--id", state.id])),
			state.problem && trouble(state.problem),
			h("footer", button("Leave it", close), button("Start", go, { kind: "primary", isOff: !state.agent || !input || state.isBusy })),
		];
	});
	get("/agents").then((found) => ((state.agents = found.items), dialog.update()), () => {});
}
