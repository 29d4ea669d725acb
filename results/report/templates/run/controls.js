// Owns what a reader can do with the timeline: search, filter, step, jump, share. Never draws.

function element(id) {
  return document.getElementById(id);
}

/** Joins the controls to a timeline, shows the section, and returns its view. */
function control(timeline) {
  const { table, view, head } = timeline;
  fill(element("timeline-key"), sorted(head.keys));
  element("timeline-key").parentElement.hidden = head.keys.length === 0;
  fill(element("timeline-function"), sorted(head.functions));
  const violations = head.moments.filter((moment) => moment.violation);
  const jumps = element("timeline-jump");
  offer(jumps, head.moments);
  jumps.parentElement.hidden = head.moments.length === 0;
  element("timeline-violation").hidden = violations.length === 0;

  const detail = element("timeline-detail");
  const select = (i, follow) => {
    timeline.selected = i;
    detail.textContent = i === NEVER ? "" : table.describe(i);
    if (follow && i !== NEVER && (table.end[i] > view.to || table.start[i] < view.from)) {
      const half = (view.to - view.from) / 2;
      view.show(table.start[i] - half, table.start[i] + half);
    }
    view.draw();
  };
  const step = (by) => {
    let from = timeline.selected;
    if (from === NEVER) {
      from = firstLate(0, table.count, (i) => table.start[i] >= view.from) - (by > 0 ? 1 : 0);
    }
    const next = table.neighbour(from, by);
    if (next >= 0 && next < table.count && table.wanted[next]) select(next, true);
  };
  let visited = -1;
  const visit = (moment) => {
    view.showAround(moment.from, moment.to);
    detail.textContent = moment.label;
  };
  const toViolation = () => {
    if (!violations.length) return;
    visited = (visited + 1) % violations.length;
    visit(violations[visited]);
    const failing = timeline.involved.find(({ i, failing }) => failing && table.index[i] === violations[visited].failing);
    timeline.selected = failing ? failing.i : NEVER;
    if (failing) detail.textContent = `${violations[visited].label.replace(/[.…]+$/, "")}. ${table.describe(failing.i)}`;
  };
  Object.assign(view.keys, { n: () => step(1), p: () => step(-1), v: toViolation, Escape: () => select(NEVER) });

  const refilter = () => {
    table.select({
      words: element("timeline-search").value.toLowerCase().split(/\s+/).filter(Boolean),
      outcomes: OUTCOMES.map((outcome) => element(`timeline-${outcome}`).checked),
      key: element("timeline-key").value,
      function: element("timeline-function").value,
    });
    const all = table.count.toLocaleString("en");
    element("timeline-count").textContent = table.matchCount === table.count
      ? `${all} operations`
      : `${table.matchCount.toLocaleString("en")} of ${all} operations`;
    view.draw();
  };
  let pause = 0;
  element("timeline-search").addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(refilter, 150);
  });
  for (const id of ["key", "function", ...OUTCOMES]) element(`timeline-${id}`).addEventListener("change", refilter);
  const buttons = {
    "timeline-in": () => view.zoom(2),
    "timeline-out": () => view.zoom(0.5),
    "timeline-whole": () => view.show(0, view.endUs),
    "timeline-next": () => step(1),
    "timeline-previous": () => step(-1),
    "timeline-violation": toViolation,
  };
  for (const [id, action] of Object.entries(buttons)) element(id).addEventListener("click", action);
  jumps.addEventListener("change", () => {
    if (jumps.value !== "") visit(head.moments[Number(jumps.value)]);
  });

  /** Shows only what fits a search, of one outcome or all: what a number of the page counts. */
  const narrow = (search, outcome) => {
    element("timeline-search").value = search;
    for (const id of ["key", "function"]) element(`timeline-${id}`).value = "";
    for (const one of OUTCOMES) element(`timeline-${one}`).checked = !outcome || one === outcome;
    refilter();
    if (table.matchCount === 1) select(table.neighbour(-1, 1), true);
    else view.show(0, view.endUs);
  };

  point(timeline, select);
  view.changed = () => {
    const step = Math.max(1, (view.to - view.from) / 100);
    element("timeline-window").textContent = `${clock(view.from, step)} to ${clock(view.to, step)}`;
    timeline.followers?.forEach((follow) => follow(view.from, view.to));
  };
  view.changed();
  refilter();
  return { view, visit, toViolation, narrow };
}

/** Hovering tells, clicking selects, and the overview moves the stretch. */
function point(timeline, select) {
  const { view } = timeline;
  const tip = element("timeline-tip");
  view.hovered = (x, y) => {
    const found = timeline.at(x, y);
    tip.hidden = !found;
    if (!found) return;
    tip.textContent = found.words ?? timeline.table.describe(found.operation);
    tip.style.top = `${y + 16}px`;
    tip.style.left = `${Math.max(0, Math.min(x + 12, view.width - 330))}px`;
  };
  view.clicked = (x, y) => {
    if (timeline.isOverview(y)) {
      const middle = ((x - GUTTER) / (view.width - GUTTER - MARGIN)) * view.endUs;
      const half = Math.min(view.to - view.from, view.endUs / 10) / 2;
      view.show(middle - half, middle + half);
      return;
    }
    const found = timeline.at(x, y);
    select(found?.operation ?? NEVER);
    if (found?.words) element("timeline-detail").textContent = found.words;
  };
}

/** Offers moments in a list, in as many words as fit a line. */
function offer(jumps, moments) {
  moments.forEach((moment, i) => {
    const option = document.createElement("option");
    option.value = String(i);
    const label = moment.label.length > 110 ? `${moment.label.slice(0, 110).replace(/\s+\S*$/, "")}…` : moment.label;
    option.textContent = `${moment.violation ? "✗ " : ""}${clock(moment.from, 1000)} ${label}`;
    jumps.append(option);
  });
}

function sorted(names) {
  return [...names].sort((one, other) => one.localeCompare(other, undefined, { numeric: true }));
}

function fill(list, names) {
  for (const name of names.slice(0, 2000)) {
    const option = document.createElement("option");
    option.value = name;
    option.textContent = name;
    list.append(option);
  }
}

/** `#t=12.3-13.1` and `&q=key:3`: the link to a stretch and a search. */
function followLink(view) {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const [, from, to] = /^([\d.]+)-([\d.]+)$/.exec(wanted.get("t") ?? "") ?? [];
  if (wanted.has("q")) {
    element("timeline-search").value = wanted.get("q");
    element("timeline-search").dispatchEvent(new Event("input"));
  }
  if (from === undefined) return;
  view.show(Number(from) * 1e6, Number(to) * 1e6);
  element("timeline").scrollIntoView();
}
