// What a run keeps and puts out: the states of its turns, its artifacts, its streams.

import { at, get, link } from "../api.js";
import { changePlan } from "../acts.js";
import { brief, clean, h, icon } from "../dom.js";
import { to } from "../router.js";
import { messageBubble, Messages } from "../talk.js";
import { banner, button, commandLine, empty, meter, quiet, skeleton, trouble } from "../ui.js";
import { valueView } from "../values.js";
import { amount, clock, command } from "../words.js";
import { forkDialog } from "./forking.js";

const MOST = 200000; // characters of a stream that are shown

export function kept(page, path, names) {
  const found = { head: -1, named: 0, turns: 0, turn: 0, state: null, changes: null, artifacts: null, streams: [], texts: {}, problem: null, plan: null, talk: null };
  let asked = 0;
  const failed = (problem) => ((found.problem = problem), page.update());

  /** What there is, whenever something was recorded, or calls of other names have come. */
  const sync = (run, tab) => {
    const isMore = found.head !== run.records;
    if (!isMore && found.named === names.size) return;
    const isFirst = found.head < 0;
    Object.assign(found, { head: run.records, named: names.size });
    found.talk ??= new Messages(run.thread_id, () => page.update());
    const looks = names.has("hf:plan") ? [readPlan()] : [];
    if ([...names].some((name) => name.startsWith("hf.thread."))) found.talk.sync();
    if (isMore) looks.push(get(`${path}/streams`).then((told) => (found.streams = told.items)), get(`${path}/state`).then(newest, none));
    if (isMore && (isFirst || tab === "artifacts")) looks.push(get(`${path}/artifacts`).then((told) => (found.artifacts = told)));
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
    return h("div.values",
      h("label.row", `Turn ${found.turn} of ${found.turns}, ${clock(found.state.at, { withDate: true })}`, h("input", { type: "range", min: "1", max: String(found.turns), value: String(found.turn), label: "Turn", on: { input: slide } }), h("span.grow"), page.shell.whyNot ? null : button("Fork with another state…", () => forkDialog(page.shell, found.run, { turn: found.turn, turns: found.turns }), { glyph: "fork" })),
      found.changes ? h("ul.lines", { label: "What differs from the turn before" }, found.changes.items.map((each) => h("li", { key: each.path }, h("span.mono", brief(each.path || "(all)", 200)), quiet(each.kind), h("span.mono.cut.grow", [each.before_json, each.after_json].filter((text) => text !== null).map((text) => brief(text, 200)).join(" → "))))) : null,
      found.changes && !found.changes.items.length ? h("p.nothing", "It is the state of the turn before.") : null,
      valueView("State", found.state.state, { where: link(`${path}/payload`, { seq: found.state.state.seq, part: found.state.state.part }), isLong: true }),
    );
  };
  const artifacts = () => {
    if (!found.artifacts) return skeleton(4);
    const { items, next } = found.artifacts;
    return h("div",
      h("ul.lines", { label: "Artifacts" }, items.map((each, n) => h("li", { key: String(n) }, each.size !== null && each.kind !== "workspace" ? h("a.mono.cut", { href: link(`${path}/artifacts${at(each.name)}`, { version: each.version }), download: "" }, brief(each.name, 120)) : h("span.mono.cut", brief(each.name, 120)), quiet(`${brief(each.kind, 40)}, version ${each.version}`), h("span.quiet.num", each.size === null ? "" : `${amount(each.size)} bytes`), h("span.cut.grow", brief(each.ref || each.detail, 200)), each.state === "stored" ? null : h("strong", each.state)))),
      next === null ? null : h("p.quiet", "There are more; the command lists all of them."),
    );
  };
  const streams = () => h("div.values", found.streams.map(({ name }) => h("section", { key: name }, h("h3", brief(name, 80)), [...(found.texts[name]?.parts ?? [])].map(([key, text]) => h("div", { key }, h("p.quiet.mono", brief(key, 120)), h("pre", clean(text.slice(-MOST))))))));

  const plan = () => {
    if (!found.plan) return skeleton(3);
    const { items, missed, pending } = found.plan;
    const done = items.filter((item) => item.done).length;
    const mayChange = !page.shell.whyNot && !["done", "failed", "cancelled"].includes(found.run.status);
    const change = (item) => changePlan(page.shell, found.run, item, readPlan);
    return h("div.values",
      h("p.row.plan-head", meter(done, items.length), `${done} of ${items.length} done`, h("span.grow"), mayChange ? button("Add…", () => change(null)) : null),
      pending.length ? banner("info", "info", "Not taken yet:", `changes by ${brief([...new Set(pending)].join(", "), 200)}; the run has them with its next call of the plan.`) : null,
      h("ol.lines", { label: "Plan" }, items.map((item) => h("li", { key: item.id, row: true }, icon(item.done ? "done" : "queued", item.done ? "done" : "to do"), h("span.quiet.num", brief(item.id, 20)), h(item.done ? "span.quiet.grow" : "span.grow", brief(item.text, 2000), item.note ? quiet(` (${brief(item.note, 500)})`) : null), mayChange ? button("Change…", () => change(item), { kind: "small", title: `Change item ${item.id}` }) : null))),
      missed.length ? h("ul.inset", missed.map((each, n) => h("li.quiet", { key: String(n) }, `Changed nothing: ${brief(each, 300)}.`))) : null,
      h("div.inset", commandLine(command("plan", found.run.id))),
    );
  };
  const talk = () => h("div.inset", h("p", "What was said in the thread ", h("a", { href: to("threads", found.run.thread_id) }, brief(found.run.thread_id, 60))), h("ol.conversation", { label: "Messages" }, (found.talk?.items ?? []).map((each) => messageBubble(each))));
  const readPlan = () => get(`${path}/plan`).then((told) => ((found.plan = told), page.update()), none);

  return {
    get turns() {
      return found.turns;
    },
    sync,
    opened: (tab) => (tab === "streams" ? read().catch(failed) : null),
    tabs: () => [found.plan ? ["plan", "Plan", `${found.plan.items.filter((item) => item.done).length}/${found.plan.items.length}`] : null, found.talk?.items.length ? ["messages", "Messages", amount(found.talk.last)] : null, found.turns ? ["state", "State", amount(found.turns)] : null, ["artifacts", "Artifacts", found.artifacts ? amount(found.artifacts.items.length) : null], found.streams.length ? ["streams", "Streams", found.streams.length] : null],
    draw: (tab, run) => ((found.run = run), found.problem ? trouble(found.problem) : { state: states, artifacts, streams, plan, messages: talk }[tab]()),
  };
}
