// What a tab hears of the feed: through a worker that all tabs share, or through the tab that leads.

import { BASE, renew } from "./api.js";
import { Stream } from "./stream.js";

const URL_OF_FEED = `${BASE}/api/v1/stream`;
const ALWAYS = ["runs", "questions", "workers"];
const HEARTBEAT_MS = 15_000;
// The cookie is of this address, so a worker of another mount, or of another version, is another one.
const NAME = `holdfast ${BASE} ${new URL(".", import.meta.url).pathname}`;

class Live {
	constructor() {
		this.state = { isLive: false, since: Date.now(), nextAt: 0, isFirst: true };
		this.handlers = new Map();
		this.topics = new Map();
		this.way = null;
	}

	start() {
		if (this.way) return;
		const hear = (message) => this.hear(message);
		this.way = typeof SharedWorker === "function" ? throughWorker(hear) : throughLeader(hear);
		this.publish();
		setInterval(() => this.way.send({ what: "here" }), HEARTBEAT_MS);
		addEventListener("pagehide", () => this.way.send({ what: "bye" }));
		addEventListener("pageshow", ({ persisted }) => persisted && this.publish());
	}

	hear(message) {
		if (message.kind === "state") {
			const wasLive = this.state.isLive;
			const isFirst = this.state.isFirst;
			this.state = { ...message, isFirst: isFirst && !message.isLive };
			this.emit("state", this.state);
			if (message.status === 401) renew().then((isIn) => isIn && this.again());
			if (message.isLive && !wasLive && !isFirst) this.emit("back", {});
			return;
		}
		this.emit(message.event, message.data);
		this.emit("any", message);
	}

	emit(name, data) {
		for (const handler of [...(this.handlers.get(name) ?? [])]) handler(data);
	}

	/** Hear of events of a name (or `any`, `state`, `back`: live again after it was not); returns how to stop. */
	on(name, handler) {
		if (!this.handlers.has(name)) this.handlers.set(name, new Set());
		this.handlers.get(name).add(handler);
		return () => this.handlers.get(name).delete(handler);
	}

	/** Follow a topic as long as somebody wants it; returns how to stop. */
	follow(topic) {
		this.topics.set(topic, (this.topics.get(topic) ?? 0) + 1);
		this.publish();
		return () => {
			const left = this.topics.get(topic) - 1;
			if (left) this.topics.set(topic, left);
			else this.topics.delete(topic);
			this.publish();
		};
	}

	publish() {
		this.way?.send({ what: "topics", url: URL_OF_FEED, topics: [...ALWAYS, ...this.topics.keys()] });
	}

	again() {
		this.way?.send({ what: "again" });
	}
}

function throughWorker(hear) {
	const place = new URL("worker.js", import.meta.url);
	const policy = globalThis.trustedTypes?.createPolicy("holdfast", {
		createScriptURL: () => place.href, // no other script is ever named
	});
	const worker = new SharedWorker(policy ? policy.createScriptURL("") : place, { type: "module", name: NAME });
	worker.port.onmessage = ({ data }) => hear(data);
	worker.port.start();
	return { send: (message) => worker.port.postMessage(message) };
}

/** Without shared workers one tab has the connection: it holds a lock, and tells the others by a channel. */
function throughLeader(hear) {
	const channel = new BroadcastChannel(NAME);
	const me = String(Math.random());
	const tabs = new Map();
	let stream = null;
	let mine = [];
	const settle = () => stream?.want([...mine, ...[...tabs.values()].flat()]);
	const lead = () => {
		stream = new Stream(URL_OF_FEED, (message) => {
			hear(message);
			channel.postMessage({ from: me, message });
		});
		channel.postMessage({ from: me, what: "who" });
		settle();
	};
	channel.onmessage = ({ data }) => {
		if (data.message) hear(data.message);
		else if (data.what === "who") channel.postMessage({ from: me, what: "topics", topics: mine });
		else if (data.what === "bye") tabs.delete(data.from);
		else if (data.what === "again") stream?.again();
		else if (data.topics) tabs.set(data.from, data.topics);
		settle();
		if (stream && data.what === "topics") channel.postMessage({ from: me, message: stream.state });
	};
	if (navigator.locks) navigator.locks.request(NAME, () => new Promise(lead));
	else lead();
	return {
		send(message) {
			if (message.topics) mine = message.topics;
			if (message.what === "again") stream?.again();
			channel.postMessage({ from: me, ...message });
			settle();
		},
	};
}

export const live = new Live();
