// What people do to runs. Each act is a dialog that shows its command; each is recorded with who and why.

import { at, post } from "./api.js";
import { brief, h } from "./dom.js";
import { askAct, say } from "./ui.js";
import { command, count, noted } from "./words.js";

/** Tell who may not act why; true if they may. */
export function mayAct(shell) {
  if (!shell.whyNot) return true;
  say(shell.whyNot, "bad");
  return false;
}

export function pauseRun(shell, run, done) {
  if (!mayAct(shell)) return;
  askAct({
    title: `Pause ${brief(run.id, 60)}?`, glyph: "paused", confirm: "Pause the run",
    text: "What is under way is finished first. It goes on where it was when it is resumed.",
    command: ({ note }) => command("pause", run.id, noted(note)),
    act: ({ note }) => post(`/runs${at(run.id)}/pause`, { note }).then(done),
  });
}

export function resumeRun(shell, run, done) {
  if (!mayAct(shell)) return;
  askAct({
    title: `Resume ${brief(run.id, 60)}?`, glyph: "play", confirm: "Resume the run",
    text: run.status === "blocked" ? "It tries again with the code that the workers have now. If that does not fit either, it is blocked again, and nothing is executed." : "A worker goes on where it was; what is in the journal is not done again.",
    command: ({ note }) => command("resume", run.id, noted(note)),
    act: ({ note }) => post(`/runs${at(run.id)}/resume`, { note }).then(done),
  });
}

export function retryRun(shell, run, done) {
  if (!mayAct(shell)) return;
  askAct({
    title: `Retry ${brief(run.id, 60)}?`, glyph: "back", confirm: "Retry the run",
    text: "What ended it is done anew; everything before it is kept.",
    command: ({ note }) => command("retry", run.id, noted(note)),
    act: ({ note }) => post(`/runs${at(run.id)}/retry`, { note }).then(done),
  });
}

export function cancelRun(shell, run, done) {
  if (!mayAct(shell)) return;
  const happened = run.calls?.effects ?? 0;
  askAct({
    title: `Cancel ${brief(run.id, 60)}?`, glyph: "stop", confirm: "Cancel the run", isDanger: true,
    text: [
      "The agent hears of it at its next call and may clean up first. ",
      happened ? h("strong", null, `${count(happened, "effect")} ${happened === 1 ? "has" : "have"} happened`) : null,
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
