// One connection to the server's feed. It runs in a worker that all tabs share, or in one tab for all.
//
// The events are read from a fetch and not by an EventSource, because topics change: the next connection says with
// Last-Event-ID what the former one had, so nothing is missed in between.

const QUIET_MS = 40_000; // the server says something every 15 s
const FIRST_MS = 1000;
const MOST_MS = 15_000;

export class Stream {
	/** `tell` gets {kind: "event", …} and {kind: "state", isLive, since, nextAt, status}. */
	constructor(url, tell) {
		this.url = url;
		this.tell = tell;
		this.topics = "";
		this.lastId = "";
		this.state = { kind: "state", isLive: false, since: Date.now(), nextAt: 0, status: 0 };
		this.failures = 0;
		this.stopping = null;
		this.timer = 0;
	}

	want(topics) {
		const wanted = [...new Set(topics)].sort().join(",");
		if (wanted === this.topics) return;
		this.topics = wanted;
		this.again();
	}

	again() {
		clearTimeout(this.timer);
		this.stopping?.abort();
		if (this.topics) this.read();
	}

	close() {
		clearTimeout(this.timer);
		this.stopping?.abort();
		this.topics = "";
	}

	async read() {
		const stopping = new AbortController();
		this.stopping = stopping;
		let watch = 0;
		const heard = () => {
			clearTimeout(watch);
			watch = setTimeout(() => stopping.abort(new Error("quiet")), QUIET_MS);
		};
		let status = 0;
		try {
			heard();
			const headers = { Accept: "text/event-stream", ...(this.lastId ? { "Last-Event-ID": this.lastId } : {}) };
			const url = `${this.url}?topics=${encodeURIComponent(this.topics)}`;
			const answer = await fetch(url, { headers, signal: stopping.signal, credentials: "same-origin", cache: "no-store" });
			status = answer.status;
			if (!answer.ok) throw new Error("refused");
			this.failures = 0;
			this.say({ isLive: true, since: Date.now(), nextAt: 0, status });
			const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
			let text = "";
			for (;;) {
				const { value, done } = await reader.read();
				if (done) break;
				heard();
				text += value;
				let end;
				while ((end = text.indexOf("\n\n")) >= 0) {
					this.event(text.slice(0, end));
					text = text.slice(end + 2);
				}
			}
		} catch {
			// Said below: whatever the cause, the next try is the remedy.
		}
		clearTimeout(watch);
		if (this.stopping !== stopping) return; // another connection has taken over
		const wait = Math.min(MOST_MS, FIRST_MS * 1.6 ** this.failures++);
		const since = this.state.isLive ? Date.now() : this.state.since;
		this.say({ isLive: false, since, nextAt: Date.now() + wait, status });
		this.timer = setTimeout(() => this.read(), wait);
	}

	event(block) {
		let name = "";
		let data = "";
		for (const line of block.split("\n")) {
			if (line.startsWith("id: ")) this.lastId = line.slice(4);
			else if (line.startsWith("event: ")) name = line.slice(7);
			else if (line.startsWith("data: ")) data += line.slice(6);
		}
		if (name) this.tell({ kind: "event", event: name, data: data ? JSON.parse(data) : {} });
	}

	say(state) {
		this.state = { kind: "state", ...state };
		this.tell(this.state);
	}
}
