// Times, amounts and commands, in the words that the command line uses.

import { brief, h } from "./dom.js";
import { keep, recall } from "./memory.js";

const THIN = "\u202f";
let isLocal = recall("hf-local-time") === "yes";

export function usesLocalTime() {
	return isLocal;
}

export function setLocalTime(wanted) {
	isLocal = wanted;
	keep("hf-local-time", wanted ? "yes" : "no");
}

const two = (number) => String(number).padStart(2, "0");

function parts(at) {
	return isLocal
		? [at.getFullYear(), at.getMonth() + 1, at.getDate(), at.getHours(), at.getMinutes(), at.getSeconds(), at.getMilliseconds()]
		: [at.getUTCFullYear(), at.getUTCMonth() + 1, at.getUTCDate(), at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds(), at.getUTCMilliseconds()];
}

export function clock(at, { withMs = false, withDate = false } = {}) {
	const [, month, day, hour, minute, second, ms] = parts(new Date(at));
	const time = `${two(hour)}:${two(minute)}:${two(second)}${withMs ? `.${String(ms).padStart(3, "0")}` : ""}`;
	return withDate ? `${two(month)}-${two(day)} ${time}` : time;
}

export function day(at) {
	const [year, month, date, hour, minute] = parts(new Date(at));
	const days = Math.abs(new Date(at) - Date.now()) / 86_400_000;
	return days > 300 ? `${year}-${two(month)}-${two(date)}` : `${two(month)}-${two(date)} ${two(hour)}:${two(minute)}`;
}

export function exact(at) {
	const utc = new Date(at).toISOString().replace("T", " ");
	return isLocal ? `${day(at)} ${clock(at, { withMs: true })} (${utc})` : utc.replace("Z", " UTC");
}

/** A length of time, given in seconds. */
export function length(seconds) {
	if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
	const s = Math.abs(seconds);
	if (s < 0.0995) return `${Math.round(s * 1000)} ms`;
	if (s < 9.95) return `${s.toFixed(1)} s`;
	if (s < 59.5) return `${Math.round(s)} s`;
	if (s < 3570) return joined(Math.floor(s / 60), "m", Math.round(s % 60), "s", s < 600);
	if (s < 86_400 * 0.99) return joined(Math.floor(s / 3600), "h", Math.round((s % 3600) / 60), "m", true);
	return joined(Math.floor(s / 86_400), "d", Math.round((s % 86_400) / 3600), "h", s < 86_400 * 10);
}

function joined(large, unit, small, rest, hasRest) {
	if (small === 60) return `${large + 1} ${unit}`;
	return hasRest && small ? `${large} ${unit} ${small} ${rest}` : `${large} ${unit}`;
}

export function relative(at) {
	const seconds = (Date.now() - new Date(at)) / 1000;
	if (Math.abs(seconds) < 2) return "now";
	const rounded = Math.abs(seconds) < 60 ? Math.round(seconds) : seconds;
	const far = Math.abs(seconds) > 86_400 * 20;
	if (far) return day(at);
	const text = coarse(Math.abs(rounded));
	return seconds >= 0 ? `${text} ago` : `in ${text}`;
}

function coarse(s) {
	if (s < 60) return `${s} s`;
	if (s < 3600) return `${Math.floor(s / 60)} m`;
	if (s < 86_400) return s < 36_000 && Math.floor((s % 3600) / 60) ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} m` : `${Math.floor(s / 3600)} h`;
	return `${Math.floor(s / 86_400)} d`;
}

/** A time that keeps saying how long ago it was. */
export function when(at) {
	return at ? h("time", { datetime: at, title: exact(at), "data-rel": "" }, relative(at)) : "";
}

export function tickTimes(root = document) {
	for (const each of root.querySelectorAll("time[data-rel]")) {
		const text = relative(each.dateTime);
		if (each.textContent !== text) each.textContent = text;
	}
}

export function amount(number) {
	if (typeof number !== "number") return String(number ?? "");
	return String(number).replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

export function money(cost) {
	if (!cost) return "";
	return cost < 0.0095 ? `$${cost.toFixed(3)}` : `$${cost.toFixed(2)}`;
}

export function bytes(size) {
	if (size < 1000) return `${size} B`;
	return size < 1_000_000 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1e6).toFixed(1)} MB`;
}

export function count(number, noun, plural = `${noun}s`) {
	return `${amount(number)} ${number === 1 ? noun : plural}`;
}

// commands

export function quoted(word) {
	const text = String(word);
	return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A command as somebody would type it; what is null is left out. */
export function command(...words) {
	return ["holdfast", ...words.flat().filter((word) => word !== null && word !== undefined && word !== false)]
		.map((word, at) => (at === 0 ? word : quoted(word)))
		.join(" ");
}

export function noted(note) {
	return note ? ["--note", brief(note, 2000)] : [];
}
