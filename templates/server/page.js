"use strict";
// Forms and pages work without this script. It shows the progress of uploads, and keeps the page of a run up to date.

for (const form of document.querySelectorAll("form[data-upload]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
}

function send(form) {
  const sending = form.querySelector(".sending"), fault = form.querySelector(".fault");
  const bar = sending.querySelector("progress"), text = sending.querySelector("span");
  const button = form.querySelector("button");
  const refuse = (why) => {
    fault.textContent = why;
    fault.hidden = false;
    sending.hidden = true;
    button.disabled = false;
  };
  let nbytes = 0;
  for (const file of form.elements.file.files) nbytes += file.size;
  if (nbytes > Number(form.dataset.most)) {
    refuse("The files are larger than the server accepts. Use cephfit trace profile, and upload the profile.");
    return;
  }
  fault.hidden = true;
  sending.hidden = false;
  button.disabled = true;
  const request = new XMLHttpRequest();
  request.upload.onprogress = (event) => {
    if (!event.lengthComputable) return;
    bar.value = 100 * event.loaded / event.total;
    text.textContent = `${Math.floor(bar.value)} %`;
  };
  request.onload = () => {
    let answer = {};
    try { answer = JSON.parse(request.responseText); } catch { /* no JSON: refused below */ }
    if (request.status === 202) location.assign(`/workloads/${answer.id}`);
    else refuse(answer.error ? `${answer.error.what}. ${answer.error.remedy}` : `The server answered ${request.status}.`);
  };
  request.onerror = () => refuse("The connection was closed before the upload ended.");
  request.open("POST", form.dataset.upload);
  request.send(new FormData(form));
}

const live = document.querySelector("[data-live]");

async function refresh() {
  if (!document.hidden) {
    try {
      const answer = await fetch(live.dataset.live);
      // The server escapes every name in this part of the page.
      if (answer.ok) live.innerHTML = await answer.text();
    } catch { /* the server does not answer at the moment */ }
  }
  if (!live.querySelector("[data-finished=yes]")) setTimeout(refresh, 2000);
}

if (live) setTimeout(refresh, 2000);
