// What this browser keeps for somebody; where it does not let the page, it holds until the page is closed.

export function recall(name) {
	try {
		return localStorage.getItem(name);
	} catch {
		return null;
	}
}

export function keep(name, value) {
	try {
		localStorage.setItem(name, value);
	} catch {
		return false;
	}
	return true;
}
