// The calls of a run, as the API tells them in columns, and what follows from them: outages, pieces of work, rows.
// Times are milliseconds since 1970.

const WAITS = new Set(["sleep", "ask", "receive"]);

export class Calls {
	constructor() {
		this.bySeq = new Map();
		this.keyed = null;
		this.list = [];
		this.names = new Set();
		this.claims = [];
		this.outages = [];
		this.head = 0;
		this.version = 0;
		this.lastAt = 0; // the last thing that is known to have happened
	}

	/** Take an answer: what changed is in it whole. */
	take(columns, createdAt) {
		const { calls, branches, names, kinds, statuses, extras } = columns;
		for (const name of names) this.names.add(name);
		this.claims = columns.claims.map((claim) => ({ ...claim, at: claim.at / 1000, last_seen: claim.last_seen ? claim.last_seen / 1000 : null }));
		const zero = this.claims.length ? columns.claims[0].at : createdAt * 1000;
		for (let n = 0; n < calls.seq.length; n += 1) {
			const seq = calls.seq[n];
			const extra = extras[seq] ?? null;
			const branch = branches[calls.branch[n]];
			const name = names[calls.name[n]];
			const key = extra?.key ?? `${branch ? `${branch}/` : ""}${name}#${calls.n[n]}`;
			const ended = calls.ended_us[n];
			const call = {
				seq, key, branch, name, extra,
				kind: kinds[calls.kind[n]],
				status: statuses[calls.status[n]],
				began: (zero + calls.began_us[n]) / 1000,
				ended: ended === null ? null : (zero + ended) / 1000,
				took: calls.took_us[n] / 1000,
				epoch: calls.epoch[n],
				tokens: calls.tokens[n],
				cost: calls.cost[n],
			};
			this.bySeq.set(seq, call);
		}
		this.keyed = null;
		this.list = [...this.bySeq.values()];
		if (this.list.some((call, n) => n && call.seq < this.list[n - 1].seq)) this.list.sort((a, b) => a.seq - b.seq);
		this.head = columns.head;
		this.version += 1;
		this.findOutages();
	}

	get byKey() {
		return (this.keyed ??= new Map(this.list.map((call) => [call.key, call])));
	}

	/** Processes that were lost: from their last sign of life to the next claim. */
	findOutages() {
		const last = this.claims.map((_, n) => (n ? this.claims[n - 1].at : 0));
		const note = (at) => {
			if (at === null) return;
			let low = 0;
			let high = this.claims.length;
			while (low < high) {
				const middle = (low + high) >> 1;
				if (this.claims[middle].at > at) high = middle;
				else low = middle + 1;
			}
			if (low < this.claims.length && at > last[low]) last[low] = at;
		};
		this.lastAt = this.claims.at(-1)?.at ?? 0;
		for (const call of this.list) {
			this.lastAt = Math.max(this.lastAt, call.ended ?? call.began);
			if (this.claims.length < 2) continue;
			note(call.began);
			note(call.ended);
			for (const attempt of call.extra?.attempts ?? []) note(attempt.ended / 1000);
		}
		this.outages = this.claims.flatMap((claim, n) => (n && claim.lost ? [{ from: Math.min(claim.at, Math.max(last[n], claim.last_seen ?? 0)), to: claim.at, claim }] : []));
	}

	/** Did a call simply work and end? It is one piece then. */
	isPlain(call) {
		return call.ended !== null && !call.extra && call.kind !== "child" && !WAITS.has(call.kind) && call.status !== "in doubt" && !this.outageIn(call.began, call.ended);
	}

	from(call) {
		return Math.max(call.began, call.ended - call.took);
	}

	/** The outage that a call was cut off by: it was under way before, and its end is after. */
	outageIn(from, to) {
		return this.outages.find((each) => from <= each.from + 1 && to >= each.to - 1) ?? null;
	}

	/** What a call's row shows: pieces {from, to, kind}. `now` is where what is open ends. */
	pieces(call, now, lostAt = null) {
		if (call.pieces && call.pieces.version === this.version && call.ended !== null) return call.pieces;
		const found = this.cut(call, now, lostAt);
		found.version = this.version;
		call.pieces = found;
		return found;
	}

	cut(call, now, lostAt) {
		const { kind, extra } = call;
		if (WAITS.has(kind)) {
			const due = extra?.due ? extra.due / 1000 : null;
			return [{ from: call.began, to: call.ended ?? Math.max(now, call.began), kind: call.ended === null ? "wait open" : "wait", due }];
		}
		const found = [];
		let start = call.began;
		for (const attempt of extra?.attempts ?? []) {
			const ended = attempt.ended / 1000;
			const outage = this.outageIn(start, ended);
			if (outage) {
				found.push({ from: start, to: outage.from, kind: "cut" });
				start = outage.to;
			}
			found.push({ from: start, to: ended, kind: "failed", error: attempt.error });
			const retry = attempt.retry_at ? attempt.retry_at / 1000 : ended;
			const lost = this.outages.find((each) => each.from >= ended - 1 && each.from <= retry);
			found.push({ from: ended, to: lost ? lost.from : retry, kind: "off" });
			start = lost ? lost.to : retry;
		}
		if (kind === "effect" && (extra?.doubt || extra?.held || call.status === "in doubt")) return [...found, ...this.doubted(call, start, now)];
		const end = call.ended ?? (lostAt && call.status === "cut off" ? lostAt : now);
		const outage = this.outageIn(start, Math.max(end, call.ended ?? 0));
		if (outage && kind !== "child") {
			found.push({ from: start, to: outage.from, kind: "cut" });
			start = outage.to;
		}
		if (call.ended !== null && kind !== "child") start = Math.max(start, call.ended - call.took);
		const work = kind === "child" ? "child" : kind === "effect" ? "effect" : call.tokens ? "tokens" : "step";
		if (call.ended !== null) found.push({ from: start, to: call.ended, kind: call.status === "failed" ? "failed" : call.status === "cancelled" ? `${work} faint` : work });
		else found.push({ from: start, to: Math.max(end, start), kind: call.status === "cut off" ? "cut" : `${work} open` });
		return found;
	}

	doubted(call, start, now) {
		const said = call.extra?.doubt ?? null;
		const at = said ? said.at / 1000 : (call.ended ?? now);
		const outage = this.outageIn(start, at);
		const lost = outage ? outage.from : call.extra?.held ? call.extra.held.at / 1000 : start;
		const found = [{ from: start, to: lost, kind: outage ? "cut" : "effect" }];
		found.push({ from: lost, to: at, kind: said ? "doubt" : "doubt open", said });
		if (said && call.ended !== null && call.took > 1 && said.verdict === "not_landed") found.push({ from: call.ended - call.took, to: call.ended, kind: "effect" });
		return found;
	}

	/** When work was done, as intervals that do not overlap; pauses below `least` are none. */
	busy(now, lostAt, least = 0) {
		const name = `${this.version} ${now} ${lostAt} ${least}`;
		if (this.worked?.name === name) return this.worked.spans;
		let spans = [];
		const add = (from, to) => {
			const last = spans.at(-1);
			if (last && from >= last[0] && from <= last[1] + least) last[1] = Math.max(last[1], to);
			else spans.push([from, to]);
		};
		for (const call of this.list) {
			if (this.isPlain(call)) add(this.from(call), call.ended);
			else if (!WAITS.has(call.kind)) for (const piece of this.pieces(call, now, lostAt)) if (!piece.kind.startsWith("doubt") && piece.kind !== "off") add(piece.from, piece.to);
		}
		const sorted = spans.sort((a, b) => a[0] - b[0]); // branches work at the same time
		spans = [];
		for (const [from, to] of sorted) add(from, to);
		this.worked = { name, spans };
		return spans;
	}
}

const TROUBLE = new Set(["failed", "in doubt", "cut off"]);

export function isTrouble(call) {
	return TROUBLE.has(call.status) || Boolean(call.extra?.doubt) || Boolean(call.extra?.held);
}

export function hasFailed(call) {
	return call.status === "failed" || Boolean(call.extra?.attempts);
}

export function labelOf(call) {
	return call.key.slice(call.branch ? call.branch.length + 1 : 0).replace(/^hf:/, "");
}

/** Rows of a tree: branches with their calls, in the order in which they began. */
export function rowsOf(calls, { folded, unfolded, children, only, now }, depth = 0, prefix = "") {
	const root = { items: [], path: "" };
	const nodes = new Map([["", root]]);
	const node = (path) => {
		const known = nodes.get(path);
		if (known) return known;
		const above = node(path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "");
		const made = { items: [], path, from: Infinity, to: 0, count: 0 };
		nodes.set(path, made);
		above.items.push(made);
		return made;
	};
	for (const call of calls.list) {
		if (only && !only(call, calls)) continue;
		node(call.branch).items.push(call);
	}
	const rows = [];
	const walk = (item, level) => {
		for (const each of item.items) {
			if (each.items) {
				sum(each, now);
				const id = `${prefix}${each.path}/`;
				const isOpen = !folded.has(id);
				rows.push({ id, kind: "branch", level, label: each.path.slice(each.path.lastIndexOf("/") + 1).replace(/^@/, "turn "), from: each.from, to: each.to, count: each.count, isOpen, calls });
				if (isOpen) walk(each, level + 1);
			} else {
				const id = prefix + each.key;
				const child = each.extra?.child ?? null;
				const isOpen = child && unfolded.has(id);
				rows.push({ id, kind: "call", level, call: each, isOpen: child ? Boolean(isOpen) : null, calls, child });
				const inner = isOpen ? children.get(child) : null;
				if (inner) rows.push(...rowsOf(inner, { folded, unfolded, children, only: null, now }, level + 1, `${child}>`));
			}
		}
	};
	walk(root, depth);
	return rows;
}

function sum(node, now) {
	Object.assign(node, { from: Infinity, to: 0, count: 0 });
	for (const each of node.items) {
		if (each.items) {
			sum(each, now);
			node.count += each.count;
			node.from = Math.min(node.from, each.from);
			node.to = Math.max(node.to, each.to);
		} else {
			node.count += 1;
			node.from = Math.min(node.from, each.began);
			node.to = Math.max(node.to, each.ended ?? now);
		}
	}
}
