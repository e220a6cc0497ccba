// Shared by all tabs: one connection, whose events go to each of them.

import { Stream } from "./stream.js";

const ports = new Map(); // port: {topics, at}
const GONE_MS = 45_000;
let stream = null;

const tell = (message) => {
	for (const port of ports.keys()) port.postMessage(message);
};

function settle() {
	const now = Date.now();
	for (const [port, { at }] of ports) if (now - at > GONE_MS) ports.delete(port); // a tab that was closed says nothing
	stream?.want([...ports.values()].flatMap(({ topics }) => topics));
}

self.onconnect = ({ ports: [port] }) => {
	ports.set(port, { topics: [], at: Date.now() });
	port.onmessage = ({ data }) => {
		if (data.what === "bye") ports.delete(port);
		else ports.set(port, { topics: data.topics ?? ports.get(port)?.topics ?? [], at: Date.now() });
		if (data.what === "topics" && !stream) stream = new Stream(data.url, tell);
		if (data.what === "again") stream?.again();
		settle();
		if (data.what === "topics" && stream) port.postMessage(stream.state);
	};
	port.start();
};

setInterval(settle, 20_000);
