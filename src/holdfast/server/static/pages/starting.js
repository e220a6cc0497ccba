// Starting a run: an agent, and its arguments as JSON.

import { get, newKey, post } from "../api.js";
import { mayAct } from "../acts.js";
import { h } from "../dom.js";
import { button, commandLine, field, openDialog, trouble } from "../ui.js";
import { command } from "../words.js";

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
    const go = async () => {
      state.isBusy = true;
      update();
      try {
        const run = await post("/runs", { agent: state.agent, input, note: state.note, ...(state.id ? { id: state.id } : {}) }, state.key);
        close();
        done(run);
      } catch (problem) {
        Object.assign(state, { problem, isBusy: false, key: newKey() });
        update();
      }
    };
    const typed = (name) => ({ input: (event) => ((state[name] = event.target.value), update()) });
    const agent = state.agents?.find((each) => each.name === state.agent);
    return [
      field("Agent", h("input", { list: "agents", autofocus: "", value: state.agent, on: typed("agent") })),
      h("datalist", { id: "agents" }, (state.agents ?? []).map((each) => h("option", { key: each.name, value: each.name }))),
      field("Arguments, by name, as JSON", h("textarea", { rows: "4", class: "mono", spellcheck: "false", "aria-invalid": input ? null : "true", value: state.input, on: typed("input") }), !input && h("small.error", "It takes a JSON object."), agent?.first && h("small", `Its first argument is ${agent.first}.`)),
      field("Id", h("input", { maxlength: "200", placeholder: "made up, if none is given", value: state.id, on: typed("id") })),
      field("Note", h("input", { maxlength: "2000", value: state.note, on: typed("note") })),
      commandLine(command("run", `FILE:${state.agent || "AGENT"}`, "--input", state.input.replace(/\s+/g, " "), state.id && ["--id", state.id])),
      state.problem && trouble(state.problem),
      h("footer", button("Leave it", close), button("Start", go, { kind: "primary", isOff: !state.agent || !input || state.isBusy })),
    ];
  });
  get("/agents").then((found) => ((state.agents = found.items), dialog.update()), () => {});
}
