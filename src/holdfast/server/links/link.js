// Decides one question with the key behind the `#`: it is sent in a body, never in an address.
const here = location.pathname.replace(/\/$/, "");
const key = new URLSearchParams(location.hash.slice(1)).get("k") ?? "";
const part = (id) => document.getElementById(id);
history.replaceState(null, "", here);

async function post(path, body) {
  const answer = await fetch(here + path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-holdfast": "1" },
    body: JSON.stringify({ key, ...body }),
  });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail ?? told.title);
  return told;
}

function say(text) {
  part("state").textContent = text;
}

async function decide(path, body) {
  try {
    const told = await post(path, { ...body, note: part("note").value });
    part("form").hidden = true;
    say(`Thank you: ${told.state}.`);
  } catch (error) {
    say(String(error.message));
  }
}

try {
  const question = await post("", {});
  part("prompt").textContent = question.prompt;
  if (question.show_json !== "null") {
    part("show").textContent = question.show_json;
    part("show").hidden = false;
  }
  if (question.state !== "open") {
    say(`It was ${question.state}.`);
  } else {
    const isYesOrNo = question.schema?.type === "boolean";
    part("yes").hidden = part("no").hidden = !isYesOrNo;
    part("label").hidden = part("value").hidden = part("send").hidden = isYesOrNo;
    if (question.draft_json !== null) part("value").value = question.draft_json;
    part("yes").addEventListener("click", () => decide("/answer", { value: true }));
    part("no").addEventListener("click", () => decide("/answer", { value: false }));
    part("decline").addEventListener("click", () => decide("/decline", {}));
    part("send").addEventListener("click", () => {
      try {
        decide("/answer", { value: JSON.parse(part("value").value) });
      } catch {
        say("That is no JSON: a text needs quotes.");
      }
    });
    part("form").hidden = false;
    say("");
  }
} catch (error) {
  say(String(error.message));
}
