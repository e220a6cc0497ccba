// What a run keeps and puts out: the states of its turns, its artifacts, its streams.

import { at, get, link } from "../api.js";
import { brief, clean, h } from "../dom.js";
import { button, empty, skeleton, trouble } from "../ui.js";
import { valueView } from "../values.js";
import { amount, clock } from "../words.js";
import { forkDialog } from "./forking.js";

const MOST = 200000; // characters of a stream that are shown

export function kept(page, path) {
  const found = { head: -1, turns: 0, turn: 0, state: null, changes: null, artifacts: null, streams: [], texts: {}, problem: null };
  let asked = 0;
  const failed = (problem) => ((found.problem = problem), page.update());

  /** What there is, whenever something was recorded. */
  const sync = (run, tab) => {
    if (found.head === run.records) return;
    const isFirst = found.head < 0;
    Object.assign(found, { head: run.records, run });
    const looks = [get(`${path}/streams`).then((told) => (found.streams = told.items)), get(`${path}/state`).then(newest, none)];
    if (isFirst || tab === "artifacts") looks.push(get(`${path}/artifacts`).then((told) => (found.artifacts = told)));
    Promise.all(looks).then(() => (tab === "streams" ? read() : null)).then(() => page.update(), failed);
  };
  const none = (problem) => {
    if (problem.status !== 404 && problem.status !== 403) throw problem;
  };
  const newest = (state) => {
    const isLast = found.turn === found.turns;
    found.turns = state.turn;
    if (isLast) return choose(state.turn, state);
  };
  const choose = async (turn, known) => {
    found.turn = turn;
    const mine = ++asked;
    const [state, told] = await Promise.all([known ?? get(`${path}/state`, { turn }), turn > 1 ? get(`${path}/diff`, { a: turn - 1, b: turn }) : null]);
    if (mine !== asked) return; // another turn was chosen meanwhile
    [found.state, found.changes] = [state, told];
    page.update();
  };
  const read = async () => {
    for (const { name, last } of found.streams) {
      const own = (found.texts[name] ??= { last: 0, parts: new Map() });
      while (own.last < last) {
        const page = await get(`${path}/streams${at(name)}`, { after: own.last, limit: 1000 });
        for (const event of page.items) own.parts.set(event.key, event.kind === "reset" ? "" : (own.parts.get(event.key) ?? "") + event.text);
        own.last = page.last;
        if (!page.items.length) break;
      }
    }
    page.update();
  };

  const states = () => {
    if (!found.state) return found.turns ? skeleton(4) : empty("info", "No turns", "Its agent has not come to a loop of turns.");
    const slide = (event) => choose(Number(event.target.value)).catch(failed);
    return h(
      "div",
      { class: "values" },
      h("label", { class: "row" }, `Turn ${found.turn} of ${found.turns}, ${clock(found.state.at, { withDate: true })}`, h("input", { type: "range", min: "1", max: String(found.turns), value: String(found.turn), "aria-label": "Turn", on: { input: slide } }), h("span", { class: "grow" }), page.shell.whyNot ? null : button("Fork with another state…", () => forkDialog(page.shell, found.run, { turn: found.turn, turns: found.turns }), { glyph: "fork" })),
      found.changes ? h("ul", { class: "lines", "aria-label": "What differs from the turn before" }, found.changes.items.map((each) => h("li", { key: each.path }, h("span", { class: "mono" }, brief(each.path || "(all)", 200)), h("span", { class: "quiet" }, each.kind), h("span", { class: "mono cut grow" }, [each.before_json, each.after_json].filter((text) => text !== null).map((text) => brief(text, 200)).join(" → "))))) : null,
      found.changes && !found.changes.items.length ? h("p", { class: "nothing" }, "It is the state of the turn before.") : null,
      valueView("State", found.state.state, { where: link(`${path}/payload`, { seq: found.state.state.seq, part: found.state.state.part }), isLong: true }),
    );
  };
  const artifacts = () => {
    if (!found.artifacts) return skeleton(4);
    const { items, next } = found.artifacts;
    return h(
      "div",
      null,
      h("ul", { class: "lines", "aria-label": "Artifacts" }, items.map((each, n) => h("li", { key: String(n) }, each.size !== null && each.kind !== "workspace" ? h("a", { class: "mono cut", href: link(`${path}/artifacts${at(each.name)}`, { version: each.version }), download: "" }, brief(each.name, 120)) : h("span", { class: "mono cut" }, brief(each.name, 120)), h("span", { class: "quiet" }, `${brief(each.kind, 40)}, version ${each.version}`), h("span", { class: "quiet num" }, each.size === null ? "" : `${amount(each.size)} bytes`), h("span", { class: "cut grow" }, brief(each.ref || each.detail, 200)), each.state === "stored" ? null : h("strong", null, each.state)))),
      next === null ? null : h("p", { class: "quiet" }, "There are more; the command lists all of them."),
    );
  };
  const streams = () => h("div", { class: "values" }, found.streams.map(({ name }) => h("section", { key: name }, h("h3", null, brief(name, 80)), [...(found.texts[name]?.parts ?? [])].map(([key, text]) => h("div", { key }, h("p", { class: "quiet mono" }, brief(key, 120)), h("pre", null, clean(text.slice(-MOST))))))));

  return {
    get turns() {
      return found.turns;
    },
    sync,
    opened: (tab) => (tab === "streams" ? read().catch(failed) : null),
    tabs: () => [found.turns ? ["state", "State", amount(found.turns)] : null, ["artifacts", "Artifacts", found.artifacts ? amount(found.artifacts.items.length) : null], found.streams.length ? ["streams", "Streams", found.streams.length] : null],
    draw: (tab) => (found.problem ? trouble(found.problem) : { state: states, artifacts, streams }[tab]()),
  };
}
