// Questions: what is to be decided, on what, and a form made from the schema of the answer.

import { at, banner, brief, button, chip, command, commandLine, copy, emptyCard, get, h, head, mayAct, newKey, noted, noteField, post, quiet, quoted, relative, runLink, say, segments, shown, showTable, skeleton, to, trouble, when } from "../kit.js";
import { fieldsOf, Form } from "../forms.js";

export function questions(page) {
	const wanted = () => page.params.get("state") ?? "open";
	const reading = page.read("/questions", given(wanted()), ["question"]);
	const state = { id: page.parts[1] ?? null, question: null, form: null, note: "", problem: null, isBusy: false, key: newKey(), told: null, before: null };

	const select = async (id) => {
		if (!id) return;
		const known = reading.data?.items.find((each) => each.id === id);
		if (state.question?.id !== id) Object.assign(state, { question: known ?? null, form: known ? new Form(known) : null, note: "", problem: null, told: null, key: newKey(), before: null });
		state.id = id;
		try {
			const found = await get(`/questions${at(id)}`);
			if (state.id !== id) return;
			if (state.question && found.shown !== state.question.shown) state.before = state.question;
			const isOther = !state.form || found.shown !== state.question?.shown;
			state.question = found;
			if (isOther) state.form = new Form(found);
		} catch (problem) {
			if (state.id === id) state.problem = problem;
		}
		page.update();
	};
	page.on("question", ({ id }) => id === state.id && select(id));
	page.on("back", () => select(state.id));
	const open = (id, isQuiet = false) => {
		page.parts = isQuiet && innerWidth < 720 ? ["questions"] : ["questions", id];
		page.param({});
		select(id);
	};
	if (state.id) select(state.id);

	const decide = async (isDecline) => {
		if (!mayAct(page.shell) || state.isBusy || !state.question) return;
		const { question, form } = state;
		const value = isDecline ? null : form.value();
		if (!isDecline && form.hasErrors) return void page.update();
		Object.assign(state, { isBusy: true, problem: null });
		page.update();
		try {
			if (isDecline) await post(`/questions${at(question.id)}/decline`, { shown: question.shown, note: state.note }, state.key);
			else await post(`/questions${at(question.id)}/answer`, { value, shown: question.shown, note: state.note }, state.key);
			say(`“${brief(question.prompt, 80)}”: ${isDecline ? "declined" : "answered"}.`);
			state.told = isDecline ? "declined" : "answered";
			reading.again();
			await select(question.id);
		} catch (problem) {
			state.key = newKey();
			if (problem.kind === "does_not_fit") form.refuse(problem.told.errors ?? []);
			state.problem = problem;
			if (problem.status === 409) await select(question.id);
		}
		state.isBusy = false;
		page.update();
	};
	page.root.addEventListener("keydown", (event) => {
		if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
			event.preventDefault();
			decide(false);
		}
	});
	Object.assign(page.keys, { a: () => page.root.querySelector(".question input, .question textarea, .question select")?.focus() });

	const draw = (data) => {
		const items = sorted(data.items);
		if (!state.id && items.length && innerWidth >= 720) open(items[0].id, true);
		if (!items.length && !state.id) return emptyCard("inbox", wanted() === "open" ? "No question is open" : "No question", "An agent asks with hf.ask(…); its run waits here and needs no process.", commandLine("holdfast questions"));
		return h("div", { class: `card split${page.parts[1] ? " is-open" : ""}` },
			h("ul.split-list", { label: "Questions" },
				items.map((each) =>
					h("li", { key: each.id, row: true, class: each.id === state.id ? "chosen" : null }, h("a", { href: to("questions", each.id), "aria-current": each.id === state.id, click: (event) => (event.preventDefault(), open(each.id)) }, h("strong", brief(each.prompt, 200)), h("span.row", h("span.mono.quiet.cut", brief(each.run_id, 60)), h("span.quiet.end", each.state === "open" ? (each.due_at ? relative(each.due_at).replace("in ", "") + " left" : when(each.asked_at)) : each.state)))),
				),
			),
			h("section.question", { label: "The question" }, state.question ? one(page, state, decide) : state.problem ? trouble(state.problem) : skeleton(6)),
		);
	};
	return {
		title: () => "Questions",
		crumbs: () => [["Questions", to("questions")], ...(page.parts[1] && innerWidth < 720 ? [[state.id, ""]] : [])],
		draw: () => [
			head("Questions", reading.data && wanted() === "open" ? `${reading.data.items.length} open` : null, segments("Which", [["open", "Open"], ["decided", "Decided"], ["all", "All"]], wanted(), (next) => ((page.parts = ["questions"]), (state.id = null), (state.question = null), page.param({ state: next === "open" ? null : next }), reading.aim("/questions", given(next))))),
			shown({ ...reading, data: filtered(reading, wanted()), again: () => reading.again() }, draw),
		],
	};
}

function given(state) {
	return state === "open" ? { state: "open" } : { state: "all" };
}

function filtered(reading, wanted) {
	if (!reading.data) return null;
	return wanted === "decided" ? { items: reading.data.items.filter((each) => each.state !== "open") } : reading.data;
}

function sorted(items) {
	return [...items].sort((a, b) => (a.due_at ?? "9999").localeCompare(b.due_at ?? "9999") || a.asked_at.localeCompare(b.asked_at));
}

function one(page, state, decide) {
	const { question, form } = state;
	const isOpen = question.state === "open";
	const why = page.shell.whyNot;
	return [
		h("header.row.wrap", chip(isOpen ? "asks" : "done", isOpen ? { yesno: "yes or no", options: "choice", form: "form", draft: "draft" }[question.kind] ?? question.kind : question.state), runLink(question.run_id, 80), quiet(brief(question.agent, 60)), quiet("asked ", when(question.asked_at))),
		isOpen && question.due_at ? h("p.quiet", "expires ", when(question.due_at), "; then the agent gets a TimeoutError") : null,
		h("h2", brief(question.prompt, 2000)),
		showTable(question.show_json),
		question.truncated ? banner("info", "info", "There is more.", "What is shown is cut: see all of it on the command line.", commandLine(command("questions", question.id))) : null,
		state.before ? banner("warn", "info", "The question has changed.", "The run asks something else by now; what you see is what it asks now.") : null,
		!isOpen ? banner(state.problem?.kind === "already_decided" ? "bad" : "info", state.problem?.kind === "already_decided" ? "failed" : "done", state.problem?.kind === "already_decided" ? "Somebody was first." : `It is ${question.state}.`, `${question.decided_by ? `${brief(question.decided_by, 80)} ` : ""}${question.decided_at ? `at ${new Date(question.decided_at).toISOString().slice(11, 19)}` : ""}${question.note ? `: ${brief(question.note, 300)}` : ""}${state.problem?.kind === "already_decided" ? " Your answer was not taken." : ""}`) : null,
		isOpen && form
			? h("form.answer", { key: question.shown, on: { submit: (event) => (event.preventDefault(), decide(false)) } },
					form.draw(() => page.update()),
					noteField(state, () => page.update(), () => decide(false), { isFirst: false }),
					state.problem && state.problem.kind !== "already_decided" ? trouble(state.problem) : null,
					h("div.row.wrap.decide", h("button", { type: "submit", class: "button primary", disabled: Boolean(why) || state.isBusy, title: why }, "Answer", h("kbd", /Mac/.test(navigator.platform) ? "⌘↵" : "Ctrl ↵")), button("Decline", () => decide(true), { kind: "plain", isOff: Boolean(why) }), why && quiet(why), h("span.grow"), button("Copy a link", () => copy(location.origin + to("questions", question.id), "Link copied."), { kind: "plain", glyph: "link" })),
					commandLine(answerCommand(question, form, state.note)),
					h("p.quiet.small", "Your answer is for what is shown here (", h("span.mono", question.shown.slice(0, 8)), "). If the run asks something else by then, it is not taken."),
				)
			: null,
	];
}

function answerCommand(question, form, note) {
	const value = form.peek();
	const fields = fieldsOf(question.schema);
	let words;
	if (question.kind === "yesno") words = [value === undefined ? "…" : value ? "yes" : "no"];
	else if (fields && value && typeof value === "object") words = Object.entries(value).map(([name, each]) => `${name}=${typeof each === "string" ? each : JSON.stringify(each)}`);
	else words = ["--json-value", JSON.stringify(value ?? null)];
	return `holdfast answer ${question.id} ${words.map(quoted).join(" ")}${note ? ` ${noted(note).map(quoted).join(" ")}` : ""}`;
}
