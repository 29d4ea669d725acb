// Owns the order in which the parts of the page wake up. Never leaves a part empty without a word.

/** Links of the page into the timeline carry a stretch in milliseconds, a search, or the number of a moment. */
function linkInto({ view, visit, narrow }, head) {
  for (const link of document.querySelectorAll("[data-search]")) {
    link.addEventListener("click", () => narrow(link.dataset.search, link.dataset.outcome));
  }
  for (const link of document.querySelectorAll("[data-from]")) {
    link.addEventListener("click", () => {
      const [from, to] = [link.dataset.from, link.dataset.to].map((ms) => Number(ms) * 1000);
      view.showAround(from, to, 100_000);
    });
  }
  for (const link of document.querySelectorAll("[data-moment]")) {
    link.addEventListener("click", () => visit(head.moments[Number(link.dataset.moment)]));
  }
}

/** Links to faults name those that a number counts; the table shows these and no other. */
function linkToFaults() {
  const shown = element("faults-shown");
  if (!shown) return;
  const rows = [...document.querySelectorAll("#faults tr[id]")];
  const narrow = (wanted, what) => {
    for (const row of rows) {
      row.hidden = wanted !== null && !wanted.has(row.id);
      const folded = row.closest("details");
      if (folded && wanted?.has(row.id)) folded.open = true;
    }
    shown.hidden = wanted === null;
    const count = rows.filter((row) => !row.hidden).length;
    shown.querySelector("output").textContent = `${count} of ${rows.length} faults${what ? `: ${what}` : ""}`;
  };
  shown.querySelector("button").addEventListener("click", () => narrow(null));
  for (const link of document.querySelectorAll("[data-faults]")) {
    link.addEventListener("click", () => narrow(new Set(link.dataset.faults.split(" ").map((id) => `fault-${id}`)), link.title));
  }
}

function sorry(id, what, error) {
  const place = element(id);
  if (place) place.textContent = `${what} could not be drawn: ${error?.message ?? error}`;
}

async function wakeTimeline() {
  const data = await unpack("timeline-data");
  if (!data) return null;
  element("timeline-live").hidden = false;
  element("timeline-wait").hidden = true;
  const timeline = new Timeline(element("timeline-canvas"), new OperationTable(data));
  const controls = control(timeline);
  linkInto(controls, data.head);
  const violated = data.head.moments.some((moment) => moment.violation);
  if (violated) controls.toViolation();
  followLink(controls.view);
  addEventListener("hashchange", () => followLink(controls.view));
  return timeline;
}

async function wakeMessages(timeline) {
  const data = timeline && await unpack("messages-data");
  if (!data) return;
  element("messages-live").hidden = false;
  element("messages-wait").hidden = true;
  const diagram = new MessageDiagram(element("messages-canvas"), new MessageTable(data), timeline.head);
  const visit = controlMessages(diagram, timeline);
  for (const link of document.querySelectorAll("[data-moment]")) {
    link.addEventListener("click", () => visit(timeline.head.moments[Number(link.dataset.moment)]));
  }
}

linkToFaults();
wakeTimeline()
  .catch((error) => {
    element("timeline-wait").hidden = false;
    sorry("timeline-wait", "The timeline", error);
    return null;
  })
  .then(wakeMessages)
  .catch((error) => sorry("messages", "The messages", error))
  .then(() => { document.documentElement.dataset.ready = "true"; });
