// Triggers: what starts runs when something happens, and what they did with what came.

import { at, get, post } from "../api.js";
import { mayAct } from "../acts.js";
import { brief, h } from "../dom.js";
import { to } from "../router.js";
import { askAct, button, chip, commandLine, empty, head, shown } from "../ui.js";
import { command, count, when } from "../words.js";

const GLYPHS = { started: "done", known: "done", ignored: "cancelled", refused: "failed", failed: "failed" };

export function triggers(page) {
  const reading = page.read("/triggers", null, ["run"]);
  page.every(10_000, () => reading.again());
  const logs = new Map();
  const open = async (name) => {
    logs.set(name, logs.has(name) && logs.get(name) ? null : await get(`/triggers${at(name)}/log`).catch(() => null));
    page.update();
  };
  const draw = (data) => {
    if (!data.items.length) return h("div", { class: "card" }, empty("bolt", "No triggers", "app.on(event, agent) makes one: events, files and messages of a queue then start runs.", commandLine("holdfast triggers")));
    return [...data.items].sort((a, b) => a.paused - b.paused).map((each) => one(page, each, logs.get(each.name), open, reading));
  };
  return { title: () => "Triggers", crumbs: () => [["Triggers", to("triggers")]], draw: () => [head("Triggers", "What starts runs when something happens."), shown(reading, draw)] };
}

function one(page, each, log, open, reading) {
  const off = { isOff: Boolean(page.shell.whyNot), title: page.shell.whyNot };
  const verb = each.paused ? "resume" : "pause";
  const turn = () => {
    if (!mayAct(page.shell)) return;
    askAct({ title: `${each.paused ? "Resume" : "Pause"} ${brief(each.name, 60)}?`, glyph: each.paused ? "play" : "paused", text: each.paused ? "It starts runs again." : "What comes is kept or dropped as its source does it; nothing is started until it is resumed.", confirm: each.paused ? "Resume it" : "Pause it", command: () => command("triggers", verb, each.name), act: ({ note }) => post(`/triggers${at(each.name)}/${verb}`, { note }).then((told) => (reading.again(), told)) });
  };
  const what = each.kind === "event" ? `event ${each.config.event}` : `${each.kind} ${JSON.stringify(each.config)}`;
  const notes = log ? [...log.recent].reverse() : [...each.recent].reverse();
  return h(
    "section",
    { class: "card", key: each.name },
    h(
      "header",
      { class: "row wrap" },
      each.paused ? chip("paused") : chip("done", "on"),
      h("h2", null, brief(each.name, 80)),
      h("span", { class: "quiet" }, `${brief(what, 160)} → ${brief(each.agent, 60)}`),
      each.where ? h("code", { class: "mono quiet cut" }, `where ${brief(JSON.stringify(each.where), 160)}`) : null,
      h("span", { class: "grow" }),
      h("span", { class: "quiet" }, `${count(each.received, "received", "received")}, ${each.matched} matched, ${each.started} started${each.refused ? `, ${each.refused} refused` : ""}`),
      button(each.paused ? "Resume" : "Pause", turn, { kind: "small plain", ...off }),
    ),
    notes.length ? h("ul", { class: "lines" }, notes.slice(0, 60).map((note, n) => h("li", { key: `${note.at} ${n}` }, chip(GLYPHS[note.what] ?? "queued", note.what), h("span", { class: "quiet" }, when(note.at)), h("span", { class: "mono cut grow" }, brief(note.detail, 300)), note.run && note.what === "started" ? h("a", { class: "mono cut", href: to("runs", note.run) }, brief(note.run, 40)) : null))) : h("p", { class: "nothing" }, "Nothing has come yet."),
    h("div", { class: "more" }, button(log ? "Show less" : "Show the log", () => open(each.name), { kind: "small plain" })),
  );
}
