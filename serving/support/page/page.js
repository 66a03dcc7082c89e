// The token is in the fragment: browsers send that nowhere. It goes in a header, to this service alone.
"use strict";
const main = document.getElementById("ticket");
const every = 30_000;
let next = 0;

function say(text) {
  const p = document.createElement("p");
  p.textContent = text;
  main.replaceChildren(p);
}

async function load() {
  clearTimeout(next); // of another address of this page
  const token = location.hash.slice(1);
  if (token === "") return say("The address of this page lacks its end, behind the “#”: it is the ticket's token.");
  try {
    const answer = await fetch(location.pathname + "/content", {
      headers: { [document.body.dataset.header]: token }, cache: "no-store", referrerPolicy: "no-referrer",
    });
    if (answer.ok) {
      // The server has sanitized it, and the page's policy lets no script in it run.
      main.innerHTML = await answer.text();
    } else if (answer.status === 401 || answer.status === 404) {
      return say("This address opens no ticket.");
    } else {
      say("The ticket cannot be read now. This page tries again.");
    }
  } catch {
    say("The ticket cannot be read now. This page tries again.");
  }
  next = setTimeout(load, every);
}
addEventListener("hashchange", load);
load();
