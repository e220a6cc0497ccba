// Where it begins: sign in, then the shell and the page that the address names.

import { Problem, signIn, whenSignedOut, whoAmI } from "./api.js";
import { fill, h, icon } from "./dom.js";
import { sprite } from "./icons.js";
import { moveRow, openRow, showKeys, startKeys } from "./keys.js";
import { live } from "./live.js";
import { recall } from "./memory.js";
import { Page } from "./page.js";
import { compare } from "./pages/compare.js";
import { doubts } from "./pages/doubts.js";
import { integrity } from "./pages/integrity.js";
import { overview } from "./pages/overview.js";
import { questions } from "./pages/questions.js";
import { queues } from "./pages/queues.js";
import { run } from "./pages/run.js";
import { runs } from "./pages/runs.js";
import { schedules } from "./pages/schedules.js";
import { threads } from "./pages/threads.js";
import { triggers } from "./pages/triggers.js";
import { workers } from "./pages/workers.js";
import { go, place, startRouter, to } from "./router.js";
import { applyTheme, Shell } from "./shell.js";
import { button, empty } from "./ui.js";

const PAGES = { overview, runs, questions, "in-doubt": doubts, schedules, triggers, queues, workers, threads, integrity, compare };
const isReadOnly = document.querySelector("meta[name=holdfast-mode]")?.content === "read-only";
const params = new URLSearchParams(location.hash.slice(1));
let page = null;

function pageOf({ parts }) {
	if (parts[0] === "runs" && parts[1]) return run;
	return PAGES[parts[0] ?? "overview"] ?? nowhere;
}

function nowhere() {
	return {
		title: () => "Nothing here",
		draw: () => [h("h1.unseen", "Nothing here"), empty("search", "There is no such page", location.pathname, button("To the overview", () => go(to())))],
	};
}

function show(shell, { scroll }) {
	page?.close();
	fill(shell.main);
	const root = h("div.page");
	shell.main.replaceChildren(root);
	page = new Page(root, shell);
	shell.page = page;
	let isRestored = !scroll;
	page.restore = () => {
		if (isRestored) return;
		scrollTo(0, scroll);
		isRestored = Math.abs(scrollY - scroll) < 2;
	};
	scrollTo(0, 0);
	page.start(pageOf(place()));
	setTimeout(() => (isRestored = true), 1500);
}

function begin(person) {
	const shell = new Shell(person, isReadOnly);
	const again = () => show(shell, { scroll: scrollY });
	shell.redraw = again;
	live.start();
	startRouter((how) => show(shell, how));
	show(shell, { scroll: history.state?.scroll ?? 0 });
	const common = {
		"/": () => shell.search(),
		"?": showKeys,
		"g o": () => go(to()),
		"g r": () => go(to("runs")),
		"g q": () => go(to("questions")),
		"g d": () => go(to("in-doubt")),
		u: () => history.back(),
		j: () => moveRow(1),
		k: () => moveRow(-1),
	};
	startKeys((key) => {
		const own = page?.keys[key];
		if (own) return own;
		if (key === "Enter" && document.activeElement?.matches?.("[data-row]")) return openRow;
		return common[key];
	});
	whenSignedOut(() => askToSignIn("The session has ended."));
}

let isAsking = false;

function askToSignIn(why) {
	if (isAsking) return;
	isAsking = true;
	const state = { token: "", problem: null };
	const box = h("div.door");
	const enter = async (event) => {
		event.preventDefault();
		try {
			await signIn(state.token.trim());
			location.reload();
		} catch (problem) {
			state.problem = problem;
			draw();
		}
	};
	const draw = () =>
		fill(
			box,
			h("form", { on: { submit: enter } },
				icon("anchor"),
				h("h1", "Holdfast"),
				h("p", why, " Open the address that `holdfast console` printed, or give a token."),
				h("label.field", h("span", "Token"), h("input", { type: "password", autocomplete: "current-password", autofocus: "", value: state.token, on: { input: (event) => (state.token = event.target.value) } })),
				state.problem && h("p.error", { role: "alert" }, state.problem.message),
				h("button.button.primary", { type: "submit" }, "Sign in"),
			),
		);
	document.body.replaceChildren(document.querySelector(".sprite") ?? "", box);
	draw();
	box.querySelector("input").focus();
}

async function start() {
	document.body.replaceChildren(sprite());
	applyTheme(recall("hf-theme") || "auto");
	const token = params.get("t");
	if (token) history.replaceState(history.state, "", location.pathname + location.search);
	try {
		begin(token ? await signIn(token) : await whoAmI());
	} catch (problem) {
		if (!(problem instanceof Problem)) throw problem;
		askToSignIn(problem.status === 401 ? "" : problem.message);
	}
}

start();
