// Owns the space-time picture of the messages between nodes. Never draws more arrows than can be told apart.

const ROW = 74;
const HELD_US = 50_000;
const ARROW_COUNT_MAX = 4000;
const LABELLED_COUNT_MAX = 90;

class MessageTable {
  constructor({ head, columns }) {
    const { count } = head;
    this.head = head;
    this.count = count;
    const nodeCount = head.nodes.length;
    this.sent = changes(columns.sent, new Float64Array(count));
    this.delay = numbers(columns.delay, new Float64Array(count)).map((delay) => delay - 1);
    const ends = numbers(columns.ends, new Uint16Array(count));
    this.from = ends.map((both) => Math.floor(both / nodeCount));
    this.to = ends.map((both) => both % nodeCount);
    const rpc = numbers(columns.rpc, new Uint16Array(count));
    this.rpc = rpc.map((both) => both >> 1);
    this.response = rpc.map((both) => both & 1);
    for (const name of ["epoch", "offset", "mark", "granted", "error"]) {
      this[name] = numbers(columns[name], new Float64Array(count)).map((number) => number - 1);
    }
    this.longest = this.delay.reduce((longest, delay) => Math.max(longest, delay), 0);
    const marks = head.mark_counts.reduce((sum, own) => sum + own, 0);
    this.markAt = changes(columns.mark_at, new Float64Array(marks));
    this.markEnd = changes(columns.mark_end, new Float64Array(marks));
    this.markHigh = changes(columns.mark_high, new Float64Array(marks));
    this.markStart = head.mark_counts.map((_, node) => head.mark_counts.slice(0, node).reduce((sum, own) => sum + own, 0));
  }

  isFetch(i) {
    return this.head.rpcs[this.rpc[i]] === "fetch";
  }

  isElection(i) {
    return /vote|quorum-epoch/.test(this.head.rpcs[this.rpc[i]]);
  }

  /** A few words for the arrow. */
  label(i) {
    const name = this.head.rpcs[this.rpc[i]];
    if (this.error[i] >= 0) return `${name} ✗ ${this.head.errors[this.error[i]]}`;
    if (this.granted[i] >= 0) return `${name} ${this.granted[i] ? "granted" : "refused"} e${this.epoch[i]}`;
    if (!this.isFetch(i)) return `${name}${this.response[i] ? " answer" : ""} e${this.epoch[i]}`;
    if (this.response[i]) return this.mark[i] >= 0 ? `hw ${this.mark[i]}` : "fetch answer";
    return `fetch ${this.offset[i] >= 0 ? this.offset[i] : ""}`;
  }

  describe(i) {
    const { head } = this;
    const number = (name, value) => (value >= 0 ? `${name} ${value}` : "");
    return [
      `${head.rpcs[this.rpc[i]]} ${this.response[i] ? "answer" : "request"} ${head.nodes[this.from[i]]} → ${head.nodes[this.to[i]]}`,
      number("epoch", this.epoch[i]),
      number("offset", this.offset[i]),
      number("high watermark", this.mark[i]),
      this.granted[i] >= 0 ? (this.granted[i] ? "granted" : "refused") : "",
      this.error[i] >= 0 ? head.errors[this.error[i]] : "",
      `sent ${clock(this.sent[i], 1)}`,
      this.delay[i] >= 0 ? `arrived after ${duration(this.delay[i])}` : "never seen to arrive",
    ].filter(Boolean).join(", ");
  }
}

/** Places of texts on a canvas, so that no two lie over each other. */
class Places {
  constructor() {
    this.taken = [];
  }

  /** Takes a place around (x, y) unless a text is there already; says whether it did. */
  take(x, y, width, height = 12) {
    const overlaps = (other) => Math.abs(other.y - y) < (height + other.height) / 2
      && Math.abs(other.x - x) < (width + other.width) / 2;
    if (this.taken.some(overlaps)) return false;
    this.taken.push({ x, y, width, height });
    return true;
  }
}

class MessageDiagram {
  constructor(canvas, table, head) {
    this.table = table;
    this.timeline = head;
    this.lives = table.head.nodes.map((node) => head.lives.find((life) => life.node === node));
    this.selected = NEVER;
    this.fetches = true;
    this.drawn = [];
    canvas.style.height = `${AXIS + ROW * table.head.nodes.length}px`;
    this.view = new TimeView(canvas, head.end_us, (...args) => this.paint(...args));
  }

  y(node) {
    return AXIS + ROW * (node + 0.45);
  }

  paint(context, width, height) {
    const { view } = this;
    view.paintAxis(context, 0, height - 4);
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, width - GUTTER - MARGIN, height);
    context.clip();
    this.places = new Places();
    this.words = [];
    this.paintFaults(context, height);
    this.table.head.nodes.forEach((_, node) => this.paintNode(context, node));
    this.choose();
    for (const i of this.drawn) this.paintArrow(context, i, i === this.selected);
    this.paintWords(context);
    if (this.drawn.length <= LABELLED_COUNT_MAX) this.paintLabels(context);
    context.restore();
    context.textAlign = "right";
    context.fillStyle = ink("ink");
    this.table.head.nodes.forEach((name, node) => context.fillText(fitted(context, name, GUTTER - 14), GUTTER - 8, this.y(node)));
  }

  paintFaults(context, height) {
    const { view } = this;
    const seen = this.timeline.faults.filter((fault) => fault.applied && fault.to >= view.from && fault.from <= view.to);
    const shade = shadeOf(seen);
    for (const fault of seen) {
      const x = Math.max(view.x(fault.from), GUTTER);
      context.fillStyle = ink(`fault-${fault.colour}`);
      context.globalAlpha = shade;
      context.fillRect(x, 18, Math.max(2, view.x(fault.to) - x), height - 22);
      context.globalAlpha = 1;
      context.textAlign = "left";
      context.fillStyle = ink("muted");
      const text = `#${fault.id} ${fault.kind}`;
      const across = context.measureText(text).width;
      // Faults that began at the same time are told one below the other, as far as there is room above the nodes.
      const y = [25, 37].find((y) => this.places.take(x + 3 + across / 2, y, across + 8, 11));
      if (y) context.fillText(text, x + 3, y);
    }
    for (const moment of this.timeline.moments) {
      if (!moment.violation || moment.to < view.from || moment.from > view.to) continue;
      context.fillStyle = ink("invalid");
      context.globalAlpha = 0.1;
      context.fillRect(view.x(moment.from), 18, Math.max(2, view.x(moment.to) - view.x(moment.from)), height - 22);
      context.globalAlpha = 1;
    }
  }

  /** The line of a node is its state; above it its epochs, below it its high watermarks. */
  paintNode(context, node) {
    const { view, table } = this;
    const y = this.y(node);
    const life = this.lives[node];
    for (let at = 0; life && at < life.spans.length; at += 3) {
      const [from, to, state] = life.spans.slice(at, at + 3);
      if (to < view.from || from > view.to) continue;
      const name = this.timeline.states[state];
      const thick = name === "down" ? 2 : 8;
      context.fillStyle = ink(`state-${name}`);
      const x = Math.max(view.x(from), GUTTER);
      const across = Math.max(2, Math.min(view.x(to), view.width) - x);
      context.fillRect(x, y - thick / 2, across, thick);
    }
    let free = -Infinity;
    const epochs = life?.epochs ?? [];
    for (let at = 0; at < epochs.length; at += 2) {
      const next = at + 2 < epochs.length ? epochs[at + 2] : Infinity;
      if (next < view.from || epochs[at] > view.to) continue;
      const x = Math.max(view.x(epochs[at]), GUTTER + 1);
      const text = `e${epochs[at + 1]}`;
      const across = context.measureText(text).width + 6;
      if (x < free || !this.places.take(x + 3 + across / 2, y - 12, across)) continue;
      this.words.push({ text, x, y: y - 12, across, colour: ink("ink"), from: y - 12, down: 16 });
      free = x + across + 6;
    }
    const start = table.markStart[node];
    const end = start + table.head.mark_counts[node];
    free = -Infinity;
    const first = firstLate(start, end, (place) => table.markAt[place] > view.from);
    for (let place = Math.max(start, first - 1); place < end && table.markAt[place] <= view.to; place += 1) {
      if (place > first && table.markHigh[place] === table.markHigh[place - 1]) continue;
      const x = Math.max(view.x(table.markAt[place]), GUTTER + 1);
      if (x < free) continue;
      const text = `hw ${table.markHigh[place]}`;
      const across = context.measureText(text).width + 6;
      free = x + across + 6;
      if (!this.places.take(x + 3 + across / 2, y + 13, across)) continue;
      this.words.push({ text, x, y: y + 13, across, colour: ink("muted"), from: y + 4, down: 8 });
    }
  }

  /** Epochs and high watermarks of the nodes, above the arrows that would cross them out. */
  paintWords(context) {
    context.textAlign = "left";
    for (const { text, x, y, across, colour, from, down } of this.words) {
      context.fillStyle = ink("card");
      context.globalAlpha = 0.8;
      context.fillRect(x + 1, y - 6, across - 2, 12);
      context.globalAlpha = 1;
      context.fillStyle = colour;
      context.fillRect(x, from, 1, down);
      context.fillText(text, x + 3, y);
    }
  }

  /** How many messages leave within a stretch. */
  countSent(from, to) {
    const first = firstLate(0, this.table.count, (i) => this.table.sent[i] >= from);
    return firstLate(first, this.table.count, (i) => this.table.sent[i] > to) - first;
  }

  /** Which messages of the stretch are drawn: all, or when they are too many, those that are not fetches. */
  choose() {
    const { view, table } = this;
    const first = firstLate(0, table.count, (i) => table.sent[i] >= view.from - table.longest);
    const last = firstLate(first, table.count, (i) => table.sent[i] > view.to);
    const visible = [];
    let fetchCount = 0;
    for (let i = first; i < last; i += 1) {
      if (table.sent[i] + Math.max(0, table.delay[i]) < view.from) continue;
      if (table.isFetch(i)) fetchCount += 1;
      visible.push(i);
    }
    const crowded = visible.length > ARROW_COUNT_MAX;
    const few = crowded || !this.fetches ? visible.filter((i) => !table.isFetch(i)) : visible;
    this.drawn = few.slice(0, ARROW_COUNT_MAX);
    const hidden = visible.length - this.drawn.length;
    const count = `${this.drawn.length} of ${visible.length} messages`;
    element("messages-count").textContent = hidden && crowded
      ? `${count}; ${fetchCount} fetches are too many to draw: zoom in`
      : count;
  }

  colour(i) {
    const { table } = this;
    if (table.delay[i] < 0) return ink("invalid");
    if (table.delay[i] >= HELD_US) return ink("info");
    if (table.error[i] >= 0 || table.granted[i] === 0) return ink("fail");
    if (table.isElection(i)) return ink("state-candidate");
    return table.response[i] && table.mark[i] >= 0 ? ink("ok") : ink("muted");
  }

  /** Both ends of the arrow, in pixels; that of a lost message ends half-way. */
  ends(i) {
    const { view, table } = this;
    const [from, to] = [this.y(table.from[i]), this.y(table.to[i])];
    const x = view.x(table.sent[i]);
    const lost = table.delay[i] < 0;
    const end = lost ? x + 14 : view.x(table.sent[i] + table.delay[i]);
    return [x, from, end, lost ? from + (to - from) * 0.45 : to];
  }

  paintArrow(context, i, selected) {
    const { table } = this;
    const [x, y, toX, toY] = this.ends(i);
    context.strokeStyle = selected ? ink("ink") : this.colour(i);
    context.fillStyle = context.strokeStyle;
    context.lineWidth = selected ? 3 : table.delay[i] >= HELD_US ? 2.5 : 1.2;
    context.setLineDash(table.response[i] ? [5, 3] : []);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(toX, toY);
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
    if (table.delay[i] < 0) {
      context.textAlign = "center";
      context.fillText("✗", toX, toY);
      return;
    }
    const angle = Math.atan2(toY - y, toX - x);
    context.beginPath();
    context.moveTo(toX, toY);
    for (const side of [0.35, -0.35]) context.lineTo(toX - 8 * Math.cos(angle + side), toY - 8 * Math.sin(angle + side));
    context.fill();
  }

  paintLabels(context) {
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "center";
    for (const i of this.drawn) {
      const [x, y, toX, toY] = this.ends(i);
      const label = this.table.label(i);
      const half = context.measureText(label).width / 2 + 2;
      // Nearer to the sender, so that arrows that cross do not share a place; elsewhere if that is taken.
      const along = (share) => ({ x: x + (toX - x) * share, y: y + (toY - y) * share });
      const at = [0.38, 0.5, 0.62, 0.27].map(along).find((at) => this.places.take(at.x, at.y, half * 2 + 2, 13));
      if (!at) continue;
      context.fillStyle = ink("card");
      context.globalAlpha = 0.85;
      context.fillRect(at.x - half, at.y - 6, half * 2, 12);
      context.globalAlpha = 1;
      context.fillStyle = ink("ink");
      context.fillText(label, at.x, at.y);
    }
    context.font = "12px system-ui, sans-serif";
  }

  /** The message whose arrow is nearest to a place. */
  at(px, py) {
    let best = NEVER;
    let bestGap = 7;
    for (const i of this.drawn) {
      const [x, y, toX, toY] = this.ends(i);
      const [across, down] = [toX - x, toY - y];
      const along = Math.min(1, Math.max(0, ((px - x) * across + (py - y) * down) / (across * across + down * down || 1)));
      const gap = Math.hypot(px - x - along * across, py - y - along * down);
      if (gap < bestGap) [best, bestGap] = [i, gap];
    }
    return best;
  }
}

/** Joins the controls to a diagram; returns how to show a moment. */
function controlMessages(diagram, timeline) {
  const { view, table } = diagram;
  const { moments } = timeline.head;
  const visit = (moment) => {
    // As long as there are few enough messages to be told in words.
    const fewer = (at, before, after) => {
      while (before > 10_000 && diagram.countSent(at - before, at + after) > LABELLED_COUNT_MAX) [before, after] = [before / 2, after / 2];
      view.show(at - before, at + after);
    };
    if (moment.violation) fewer(moment.to, 150_000, 50_000);
    else fewer(moment.from, 60_000, 25_000);
  };
  const jumps = element("messages-jump");
  offer(jumps, moments);
  jumps.addEventListener("change", () => {
    if (jumps.value !== "") visit(moments[Number(jumps.value)]);
  });
  const detail = element("messages-detail");
  const select = (i) => {
    diagram.selected = i;
    detail.textContent = i === NEVER ? "" : table.describe(i);
    if (i !== NEVER && (table.sent[i] < view.from || table.sent[i] > view.to)) {
      const half = (view.to - view.from) / 2;
      view.show(table.sent[i] - half, table.sent[i] + half);
    }
    view.draw();
  };
  const step = (by) => {
    let i = diagram.selected === NEVER
      ? firstLate(0, table.count, (at) => table.sent[at] >= view.from) - (by > 0 ? 1 : 0)
      : diagram.selected;
    do i += by; while (i >= 0 && i < table.count && !diagram.fetches && table.isFetch(i));
    if (i >= 0 && i < table.count) select(i);
  };
  Object.assign(view.keys, { n: () => step(1), p: () => step(-1), Escape: () => select(NEVER) });
  const tip = element("messages-tip");
  view.hovered = (x, y) => {
    const i = x < 0 ? NEVER : diagram.at(x, y);
    tip.hidden = i === NEVER;
    if (tip.hidden) return;
    tip.textContent = table.describe(i);
    tip.style.top = `${y + 16}px`;
    tip.style.left = `${Math.max(0, Math.min(x + 12, view.width - 330))}px`;
  };
  view.clicked = (x, y) => select(diagram.at(x, y));
  view.changed = () => {
    const exact = Math.max(1, (view.to - view.from) / 100);
    element("messages-window").textContent = `${clock(view.from, exact)} to ${clock(view.to, exact)}`;
  };
  element("messages-in").addEventListener("click", () => view.zoom(2));
  element("messages-out").addEventListener("click", () => view.zoom(0.5));
  element("messages-timeline").addEventListener("click", () => view.show(timeline.view.from, timeline.view.to));
  element("messages-fetch").addEventListener("change", (event) => {
    diagram.fetches = event.target.checked;
    view.draw();
  });
  // The first election is that of a cluster that starts; later ones tell more.
  const first = moments[0]?.violation ? moments[0] : moments[1] ?? moments[0];
  if (first) visit(first);
  else view.showAround(table.sent[0], table.sent[0], 100_000);
  view.changed();
  return visit;
}
