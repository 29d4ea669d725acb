// Owns the picture of the timeline: fault bands, node strips, one lane per client. Never filters by itself.

const BAND = 15;
const STRIP = 22;
const AXIS = 34;
const OVERVIEW = 40;

class Timeline {
  constructor(canvas, table) {
    this.table = table;
    this.head = table.head;
    this.kinds = [...new Set(this.head.faults.map((fault) => fault.kind))];
    this.lives = this.head.lives.filter((life) => life.spans.length);
    this.involved = this.findInvolved();
    this.selected = NEVER;
    this.layer = document.createElement("canvas");
    this.arrange(canvas);
    this.view = new TimeView(canvas, this.head.end_us, (...args) => this.paint(...args));
  }

  /** Operations that are part of a violation, and those at which no order remained. */
  findInvolved() {
    const violations = this.head.moments.filter((moment) => moment.violation);
    const indices = new Set(violations.flatMap((moment) => moment.indices));
    const failing = new Set(violations.map((moment) => moment.failing));
    const found = [];
    for (let i = 0; indices.size && i < this.table.count; i += 1) {
      if (indices.has(this.table.index[i])) found.push({ i, failing: failing.has(this.table.index[i]) });
    }
    return found;
  }

  arrange(canvas) {
    const { laneCount } = this.table;
    this.bandTop = AXIS;
    this.stripTop = this.bandTop + BAND * this.kinds.length + 4;
    this.laneTop = this.stripTop + STRIP * this.lives.length + 6;
    this.laneHeight = Math.max(4, Math.min(22, Math.floor(400 / laneCount)));
    this.laneBottom = this.laneTop + this.laneHeight * laneCount;
    this.height = this.laneBottom + OVERVIEW + 8;
    canvas.style.height = `${this.height}px`;
  }

  paint(context, width) {
    const { view } = this;
    view.paintAxis(context, 0, this.laneBottom);
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, width - GUTTER - MARGIN, this.height);
    context.clip();
    this.paintFaults(context);
    this.paintLives(context);
    this.paintBars(context, width);
    this.paintLabels(context);
    this.paintMarks(context);
    this.paintViolations(context);
    this.paintSelected(context);
    context.restore();
    this.paintNames(context);
    this.paintOverview(context, width);
  }

  paintNames(context) {
    context.textAlign = "right";
    context.fillStyle = ink("muted");
    this.kinds.forEach((kind, row) => {
      context.fillText(fitted(context, kind, GUTTER - 14), GUTTER - 8, this.bandTop + BAND * row + BAND / 2);
    });
    context.fillStyle = ink("ink");
    this.lives.forEach((life, row) => {
      context.fillText(fitted(context, life.node, GUTTER - 14), GUTTER - 8, this.stripTop + STRIP * row + 14);
    });
    context.fillStyle = ink("muted");
    const every = Math.ceil(13 / this.laneHeight);
    for (let lane = 0; lane < this.table.laneCount; lane += every) {
      context.fillText(`client ${lane}`, GUTTER - 8, this.laneTop + this.laneHeight * (lane + 0.5));
    }
  }

  paintFaults(context) {
    const { view } = this;
    const seen = this.head.faults.filter((fault) => fault.to >= view.from && fault.from <= view.to);
    const shade = shadeOf(seen);
    for (const fault of seen) {
      const x = view.x(fault.from);
      const across = Math.max(2, view.x(fault.to) - x);
      const y = this.bandTop + BAND * this.kinds.indexOf(fault.kind);
      const colour = ink(`fault-${fault.colour}`);
      if (fault.applied) {
        context.fillStyle = colour;
        context.fillRect(x, y + 1, across, BAND - 3);
        context.globalAlpha = shade;
        context.fillRect(x, this.stripTop, across, this.laneBottom - this.stripTop);
        context.globalAlpha = 1;
      } else {
        context.strokeStyle = colour;
        context.strokeRect(x + 0.5, y + 1.5, across, BAND - 4);
      }
      const label = `#${fault.id}`;
      if (across < 28) continue;
      context.fillStyle = fault.applied ? ink("card") : ink("muted");
      context.textAlign = "left";
      context.fillText(label, Math.max(x, GUTTER) + 4, y + BAND / 2);
    }
  }

  paintLives(context) {
    const { view } = this;
    this.lives.forEach((life, row) => {
      const y = this.stripTop + STRIP * row;
      const { spans, epochs } = life;
      const spanCount = spans.length / 3;
      let at = firstLate(0, spanCount, (span) => spans[span * 3 + 1] >= view.from);
      let painted = -1;
      for (; at < spanCount && spans[at * 3] <= view.to; at += 1) {
        const [from, to] = [view.x(spans[at * 3]), view.x(spans[at * 3 + 1])];
        const state = this.head.states[spans[at * 3 + 2]];
        // What is narrower than a pixel is drawn once per pixel, so that a flapping node costs no time.
        if (to - from < 1 && Math.floor(from) === painted) continue;
        painted = Math.floor(from);
        context.fillStyle = ink(`state-${state}`);
        if (state === "down") context.fillRect(from, y + 12, Math.max(1.5, to - from), 4);
        else context.fillRect(from, y + 8, Math.max(1.5, to - from), 12);
      }
      this.paintEpochs(context, epochs, y);
    });
  }

  paintEpochs(context, epochs, y) {
    const { view } = this;
    const epochCount = epochs.length / 2;
    let free = -Infinity;
    let first = firstLate(0, epochCount, (epoch) => epochs[epoch * 2] >= view.from);
    // The epoch that the stretch begins in is told at its edge.
    first = Math.max(0, first - 1);
    context.textAlign = "left";
    context.font = "10px system-ui, sans-serif";
    for (let at = first; at < epochCount && epochs[at * 2] <= view.to; at += 1) {
      const x = Math.max(view.x(epochs[at * 2]), GUTTER + 1);
      if (x < free) continue;
      const label = `e${epochs[at * 2 + 1]}`;
      context.fillStyle = ink("ink");
      context.fillRect(x, y + 3, 1, 17);
      context.fillText(label, x + 3, y + 4);
      free = x + 10 + label.length * 6;
    }
    context.font = "12px system-ui, sans-serif";
  }

  /** All bars at once into an image, so that a million of them cost no more than the pixels they fill. */
  paintBars(context, width) {
    const ratio = devicePixelRatio || 1;
    const across = Math.round((width - GUTTER - MARGIN) * ratio);
    const down = Math.round((this.laneBottom - this.laneTop) * ratio);
    const { layer } = this;
    if (layer.width !== across || layer.height !== down) {
      [layer.width, layer.height] = [across, down];
      this.image = new ImageData(across, down);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.pixels.fill(0);
    this.colours = OUTCOMES.map((outcome) => pixel(ink(outcome)));
    for (let lane = 0; lane < this.table.laneCount; lane += 1) this.paintLane(lane, across, ratio);
    layer.getContext("2d", { willReadFrequently: true }).putImageData(this.image, 0, 0);
    context.drawImage(layer, GUTTER, this.laneTop, width - GUTTER - MARGIN, this.laneBottom - this.laneTop);
  }

  paintLane(lane, across, ratio) {
    const { table, view } = this;
    const { shown, shownStart, shownEnd, outcome, failBefore, infoBefore } = table;
    const scale = across / (view.to - view.from);
    const [low, high] = [table.shownLane[lane], table.shownLane[lane + 1]];
    // Bars that began before the stretch may reach into it.
    let place = Math.max(low, firstNotBefore(shownStart, low, high, view.from) - 8);
    const top = Math.round(lane * this.laneHeight * ratio);
    const full = Math.max(2, Math.round((this.laneHeight - (this.laneHeight > 6 ? 3 : 1)) * ratio));
    while (place < high && shownStart[place] <= view.to) {
      const from = Math.floor((shownStart[place] - view.from) * scale);
      const to = Math.floor((shownEnd[place] - view.from) * scale);
      const crowded = place + 1 < high && (shownStart[place + 1] - view.from) * scale < from + 1;
      if (to > from || !crowded) {
        this.paintBar(from, Math.max(to, from + 1), top, full, outcome[shown[place]], across);
        place += 1;
        continue;
      }
      const next = leap(shownStart, place + 1, high, (from + 1) / scale + view.from);
      this.paintColumn(
        from, top, full, across,
        next - place, failBefore[next] - failBefore[place], infoBefore[next] - infoBefore[place],
      );
      place = next;
    }
  }

  /** Outcomes differ in shape, too: a failure is a low bar, an unknown outcome a striped one. */
  paintBar(from, to, top, full, outcome, across) {
    const left = Math.max(from, 0);
    const right = Math.min(to, across);
    const rise = outcome === 1 ? Math.floor(full * 0.45) : 0;
    const colour = this.colours[outcome];
    for (let y = top + rise; y < top + full; y += 1) {
      const row = y * across;
      if (outcome !== 2 || right - left < 4) this.pixels.fill(colour, row + left, Math.max(row + left, row + right));
      else for (let x = left; x < right; x += 1) if ((x + y) % 4 > 1 || y === top || y === top + full - 1) this.pixels[row + x] = colour;
    }
  }

  /** Where many operations share a pixel, the column is divided as the outcomes are. */
  paintColumn(x, top, full, across, all, fail, info) {
    if (x < 0 || x >= across) return;
    const infoHeight = info ? Math.max(1, Math.round((full * info) / all)) : 0;
    const failHeight = fail ? Math.max(1, Math.round((full * fail) / all)) : 0;
    for (let y = 0; y < full; y += 1) {
      const outcome = y < infoHeight ? 2 : y >= full - failHeight ? 1 : 0;
      if (outcome === 0 && all === fail + info) continue;
      this.pixels[(top + y) * across + x] = this.colours[outcome];
    }
  }

  /** Bars that are wide enough carry their operation. */
  paintLabels(context) {
    const { table, view } = this;
    if (this.laneHeight < 12) return;
    context.textAlign = "left";
    context.font = "11px system-ui, sans-serif";
    for (let lane = 0; lane < table.laneCount; lane += 1) {
      const [low, high] = [table.shownLane[lane], table.shownLane[lane + 1]];
      const first = Math.max(low, firstNotBefore(table.shownStart, low, high, view.from) - 8);
      const last = firstNotBefore(table.shownStart, first, high, view.to);
      if (last - first > 400) continue;
      for (let place = first; place < last; place += 1) {
        const i = table.shown[place];
        const from = Math.max(view.x(table.start[i]), GUTTER);
        const across = Math.min(view.x(table.end[i]), view.width - MARGIN) - from - 6;
        if (across < 26) continue;
        const y = this.laneTop + this.laneHeight * lane + (this.laneHeight - 3) * (table.outcome[i] === 1 ? 0.72 : 0.5);
        const label = fitted(context, table.label(i), across);
        if (table.outcome[i] === 2) {
          context.fillStyle = ink("card");
          context.fillRect(from + 2, y - 6, context.measureText(label).width + 4, 12);
        }
        context.fillStyle = table.outcome[i] === 2 ? ink("ink") : ink("card");
        context.fillText(label, from + 3, y + 0.5);
      }
    }
    context.font = "12px system-ui, sans-serif";
  }

  paintMarks(context) {
    const { view } = this;
    let free = Infinity;
    context.textAlign = "right";
    context.fillStyle = ink("muted");
    for (const [at, label] of [...this.head.marks].reverse()) {
      if (at < view.from || at > view.to) continue;
      const x = Math.round(view.x(at));
      context.fillRect(x, 18, 1, this.laneBottom - 18);
      const right = Math.min(x - 3, free);
      context.fillText(label, right, 25);
      free = right - context.measureText(label).width - 8;
    }
  }

  paintViolations(context) {
    const { view, table } = this;
    // Violations of one moment have one label: the first one's.
    let labelled = { left: Infinity, right: -Infinity };
    for (const moment of this.head.moments) {
      if (!moment.violation || moment.to < view.from || moment.from > view.to) continue;
      const [from, to] = [view.x(moment.from), view.x(moment.to)];
      context.fillStyle = ink("invalid");
      context.globalAlpha = 0.12;
      context.fillRect(from, 18, Math.max(2, to - from), this.laneBottom - 18);
      context.globalAlpha = 1;
      context.beginPath();
      const tip = Math.max(from, GUTTER + 6);
      context.moveTo(tip - 5, 18);
      context.lineTo(tip + 5, 18);
      context.lineTo(tip, 28);
      context.fill();
      // Beside the mark, on the side where there is room.
      const toTheLeft = tip > view.width - 200;
      const room = Math.min(320, toTheLeft ? tip - GUTTER - 20 : view.width - tip - 20);
      const label = fitted(context, moment.label, room);
      const [left, right] = toTheLeft ? [tip - 9 - room, tip] : [tip, tip + 9 + context.measureText(label).width];
      if (left < labelled.right && right > labelled.left) continue;
      labelled = { left: Math.min(left, labelled.left), right: Math.max(right, labelled.right) };
      context.textAlign = toTheLeft ? "right" : "left";
      context.fillText(label, toTheLeft ? tip - 9 : tip + 9, 24);
    }
    for (const { i, failing } of this.involved) {
      if (table.end[i] < view.from || table.start[i] > view.to) continue;
      this.frame(context, i, ink("invalid"), failing ? 3 : 2);
      const x = Math.min(Math.max(view.x(table.start[i]), GUTTER), view.width - MARGIN);
      const y = this.laneTop + this.laneHeight * (table.process[i] % table.laneCount) + (this.laneHeight - 3) / 2;
      if (!failing) continue;
      context.fillStyle = ink("invalid");
      context.textAlign = "right";
      context.font = "bold 14px system-ui, sans-serif";
      context.fillText("✗", x - 4, y);
      context.font = "12px system-ui, sans-serif";
    }
  }

  paintSelected(context) {
    if (this.selected !== NEVER) this.frame(context, this.selected, ink("ink"), 2);
  }

  frame(context, i, colour, thickness) {
    const { view, table } = this;
    const lane = table.process[i] % table.laneCount;
    const from = view.x(table.start[i]);
    const across = Math.max(3, view.x(table.end[i]) - from);
    context.strokeStyle = colour;
    context.lineWidth = thickness;
    context.strokeRect(from - 1.5, this.laneTop + this.laneHeight * lane - 1, across + 3, this.laneHeight);
    context.lineWidth = 1;
  }

  /** The whole run in small, with the stretch that is shown above. */
  paintOverview(context, width) {
    const top = this.laneBottom + 10;
    const down = OVERVIEW - 8;
    const across = Math.floor(width - GUTTER - MARGIN);
    context.drawImage(this.overview(across, down), GUTTER, top, across, down);
    const { view } = this;
    context.fillStyle = ink("invalid");
    for (const moment of this.head.moments) {
      if (moment.violation) context.fillRect(GUTTER + (moment.from / view.endUs) * across - 1, top, 3, down);
    }
    const [from, to] = [view.from, view.to].map((at) => GUTTER + (at / view.endUs) * across);
    context.fillStyle = ink("page");
    context.globalAlpha = 0.65;
    context.fillRect(GUTTER, top, from - GUTTER, down);
    context.fillRect(to, top, GUTTER + across - to, down);
    context.globalAlpha = 1;
    context.strokeStyle = ink("ink");
    context.strokeRect(from + 0.5, top + 0.5, Math.max(3, to - from - 1), down - 1);
    context.fillStyle = ink("muted");
    context.textAlign = "right";
    context.fillText("whole run", GUTTER - 8, top + down / 2);
  }

  /** A picture of how many shown operations begin in each part of the run, by outcome; drawn once. */
  overview(across, down) {
    const { table } = this;
    const name = [across, down, ink("card")].join();
    if (this.small?.name === name && this.small.shown === table.shown) return this.small.picture;
    const counts = new Uint32Array(across * 3);
    for (let place = 0; place < table.shown.length; place += 1) {
      const x = Math.min(across - 1, Math.floor((table.shownStart[place] / this.head.end_us) * across));
      counts[x * 3 + table.outcome[table.shown[place]]] += 1;
    }
    const totals = Array.from({ length: across }, (_, x) => counts[x * 3] + counts[x * 3 + 1] + counts[x * 3 + 2]);
    // One burst must not flatten all the rest.
    const most = Math.max(1, totals.sort((one, other) => one - other)[Math.floor(across * 0.995)]);
    const picture = document.createElement("canvas");
    [picture.width, picture.height] = [across, down];
    const context = picture.getContext("2d");
    context.fillStyle = ink("code");
    context.fillRect(0, 0, across, down);
    for (let x = 0; x < across; x += 1) {
      let below = 0;
      for (let outcome = 0; outcome < 3; outcome += 1) {
        const count = counts[x * 3 + outcome];
        if (!count) continue;
        const [low, high] = [below, below + count].map((part) => Math.min(down, (part / most) * down));
        context.fillStyle = ink(OUTCOMES[outcome]);
        context.fillRect(x, down - high, 1, Math.max(1, high - low));
        below += count;
      }
    }
    this.small = { name, shown: table.shown, picture };
    return picture;
  }

  /** What is at a place of the picture: an operation's number, or words. */
  at(x, y) {
    const { view, table } = this;
    if (x < GUTTER || x > view.width - MARGIN) return null;
    const time = view.time(x);
    const near = 4 / view.scale();
    const lane = Math.floor((y - this.laneTop) / this.laneHeight);
    if (lane >= 0 && lane < table.laneCount) {
      const i = table.at(lane, time, near);
      return i === NEVER ? null : { operation: i };
    }
    const band = Math.floor((y - this.bandTop) / BAND);
    if (band >= 0 && band < this.kinds.length) {
      const found = this.head.faults.filter((fault) => fault.kind === this.kinds[band]
        && fault.from - near <= time && time <= fault.to + near);
      if (found.length) return { words: found.map(describeFault).join(" · ") };
    }
    const life = this.lives[Math.floor((y - this.stripTop) / STRIP)];
    return life && y >= this.stripTop ? { words: this.describeLife(life, time) } : null;
  }

  describeLife(life, time) {
    const { spans, epochs } = life;
    const span = firstLate(0, spans.length / 3, (at) => spans[at * 3 + 1] >= time);
    const state = span * 3 < spans.length && spans[span * 3] <= time ? this.head.states[spans[span * 3 + 2]] : "nothing known";
    const epoch = firstLate(0, epochs.length / 2, (at) => epochs[at * 2] > time) - 1;
    return `${life.node} at ${clock(time, 1000)}: ${state}${epoch >= 0 ? `, epoch ${epochs[epoch * 2 + 1]}` : ""}`;
  }

  isOverview(y) {
    return y > this.laneBottom + 6;
  }
}

/** How much a fault darkens what lies behind it: less where there are many, which would add up. */
function shadeOf(faults) {
  return 0.1 / Math.max(1, faults.filter((fault) => fault.applied).length / 3);
}

function describeFault(fault) {
  return `fault #${fault.id} ${fault.kind}: ${fault.text}, ${clock(fault.from, 1000)} to ${clock(fault.to, 1000)}, effect: ${fault.effect}`;
}

/** The first place between `low` and `high` at which `times` is not before `time`, else `high`. */
function firstNotBefore(times, low, high, time) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] >= time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Like firstNotBefore, for a result that is probably near `low`. */
function leap(times, low, high, time) {
  let step = 1;
  let reach = low;
  while (reach < high && times[reach] < time) {
    low = reach + 1;
    reach += step;
    step *= 2;
  }
  return firstNotBefore(times, low, Math.min(reach, high), time);
}
