// The filter language of runs: `status:failed agent:triage since:7d`, and how an id begins.

const STATUSES = ["queued", "running", "sleeping", "waiting", "paused", "in_doubt", "blocked", "quarantined", "done", "failed", "cancelled"];
const PLAIN = ["agent", "thread", "queue", "parent"];
const UNITS = { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 };

/** What a filter means: what the API is given, its terms, and what is wrong with it. A word that is not known is never
		ignored: it would show too much. */
export function parse(text) {
	const given = { status: [], tag: [] };
	const terms = words(text).map((word) => ({ text: word, problem: take(given, word) }));
	const problem = terms.find((term) => term.problem)?.problem ?? null;
	if (!given.status.length) delete given.status;
	if (!given.tag.length) delete given.tag;
	return { given, terms, problem };
}

/** Words; one in quotes may have blanks in it. */
function words(text) {
	return (text.match(/(?:[^\s"]|"[^"]*")+/g) ?? []).slice(0, 30);
}

function take(given, word) {
	const colon = word.indexOf(":");
	const name = colon > 0 ? word.slice(0, colon).toLowerCase() : "";
	const value = word.slice(colon + 1).replaceAll('"', "");
	const twice = (key) => (key in given ? `There is more than one ${key}.` : null);
	if (name === "status") {
		const wanted = value.toLowerCase().replaceAll(" ", "_").replaceAll("-", "_");
		if (!STATUSES.includes(wanted)) return `There is no status “${value}”. There are: ${STATUSES.join(", ")}.`;
		given.status.push(wanted);
	} else if (PLAIN.includes(name)) {
		if (!value) return `${name}: needs a value.`;
		if (twice(name)) return twice(name);
		given[name] = value;
	} else if (name === "since" || name === "until") {
		const at = moment(value);
		if (!at) return `“${value}” is no time: 30m, 12h, 7d, or 2026-11-16T10:00Z.`;
		if (twice(name)) return twice(name);
		given[name] = at;
	} else if (name === "tag") {
		if (!value.includes("=")) return "A tag is NAME=VALUE.";
		given.tag.push(value);
	} else if (name === "cut_off" || name === "cut-off") given.cut_off = true;
	else if (isTermLike(name) && value) return `There is no term “${name}:”. There are: ${TERMS.join(", ")}. In quotes it is how an id begins.`;
	else {
		const meant = STATUSES.includes(word) ? `status:${word}` : /^cut[_-]off$/.test(word) ? "cut_off:yes" : TERMS.includes(word.split("=")[0]) ? word.replace("=", ":") : null;
		if (meant) return `It is written ${meant}. In quotes it is how an id begins.`;
		if (given.prefix) return "An id begins in one way: there are two words that are no terms.";
		given.prefix = word.replaceAll('"', "");
	}
	return null;
}

const TERMS = ["status", ...PLAIN, "since", "until", "tag", "cut_off"];
// Ids may have colons (tickets:e_609…), so only what somebody may take for a term is refused: these, and slips of the pen.
const OTHERS = /^(id|run|name|kind|cost|calls|is|has|before|after|owner|worker|from|to|error)$/;

function isTermLike(name) {
	return OTHERS.test(name) || (/^[a-z_]+$/.test(name) && TERMS.some((term) => term.slice(0, 2) === name.slice(0, 2) && Math.abs(term.length - name.length) < 4));
}

function moment(value) {
	const age = /^(\d+)([smhdw])$/.exec(value);
	if (age) return new Date(Date.now() - Number(age[1]) * UNITS[age[2]] * 1000).toISOString();
	const at = new Date(value);
	return /^\d{4}-\d\d-\d\d/.test(value) && !Number.isNaN(at.getTime()) ? at.toISOString() : null;
}

export const SHOWN_TERMS = {
	text: (terms) => terms.map((term) => term.text).join(" "),
	without: (terms, names) => terms.filter((term) => !names.some((name) => term.text.startsWith(`${name}:`))).map((term) => term.text).join(" "),
};
