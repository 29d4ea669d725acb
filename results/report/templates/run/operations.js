// Owns the operations of the timeline: their columns, their lanes, and which of them are wanted. Never draws.

const OUTCOMES = ["ok", "fail", "info"];
const NEVER = -1;

class OperationTable {
  constructor({ head, columns }) {
    const { count } = head;
    this.head = head;
    this.count = count;
    this.start = changes(columns.start, new Float64Array(count));
    this.length = numbers(columns.length, new Float64Array(count));
    this.process = numbers(columns.process, new Float64Array(count));
    const kinds = numbers(columns.kind, new Uint32Array(count));
    this.outcome = new Uint8Array(count);
    this.function = new Uint16Array(count);
    for (let i = 0; i < count; i += 1) {
      this.outcome[i] = kinds[i] % 3;
      this.function[i] = kinds[i] / 3;
      this.length[i] -= 1;
    }
    this.key = numbers(columns.key, new Uint32Array(count));
    this.node = numbers(columns.node, new Uint16Array(count));
    this.error = numbers(columns.error, new Uint16Array(count));
    this.index = changes(columns.index, new Float64Array(count));
    this.text = columns.value;
    this.textStart = new Uint32Array(count + 1);
    for (let i = 0, at = 0; i < count; i += 1) {
      at = this.text.indexOf(10, at) + 1;
      this.textStart[i + 1] = at;
    }
    this.laneCount = Math.max(1, head.concurrency);
    this.shareLanes();
    this.wanted = new Uint8Array(count).fill(1);
    this.select({ words: [], outcomes: [true, true, true], key: "", function: "" });
  }

  /** Sorts the operations into lanes, and ends those without answer where their lane goes on. */
  shareLanes() {
    const { count, laneCount, process, start, length } = this;
    this.end = new Float64Array(count);
    const sizes = new Uint32Array(laneCount + 1);
    for (let i = 0; i < count; i += 1) sizes[(process[i] % laneCount) + 1] += 1;
    for (let lane = 0; lane < laneCount; lane += 1) sizes[lane + 1] += sizes[lane];
    this.laneStart = sizes;
    const next = sizes.slice();
    this.laneOrder = new Uint32Array(count);
    for (let i = 0; i < count; i += 1) {
      const lane = process[i] % laneCount;
      const place = next[lane]++;
      this.laneOrder[place] = i;
      this.end[i] = length[i] === NEVER ? this.head.end_us : start[i] + length[i];
      if (place > this.laneStart[lane]) {
        const before = this.laneOrder[place - 1];
        if (length[before] === NEVER) this.end[before] = start[i];
      }
    }
  }

  /** Keeps what fits the filter; `shown` has them by lane, with counts of what came before. */
  select(filter) {
    const { count, laneCount, laneStart, laneOrder, outcome, wanted } = this;
    const key = filter.key === "" ? NEVER : this.head.keys.indexOf(filter.key) + 1;
    const wantedFunction = filter.function === "" ? NEVER : this.head.functions.indexOf(filter.function);
    const tests = filter.words.map((word) => this.test(word));
    this.matchCount = 0;
    for (let i = 0; i < count; i += 1) {
      const fits = filter.outcomes[outcome[i]]
        && (key === NEVER || this.key[i] === key)
        && (wantedFunction === NEVER || this.function[i] === wantedFunction)
        && tests.every((test) => test(i));
      wanted[i] = fits ? 1 : 0;
      if (fits) this.matchCount += 1;
    }
    this.shown = new Uint32Array(this.matchCount);
    // Copies in the order of drawing: a picture of everything reads a million of them.
    this.shownStart = new Float64Array(this.matchCount);
    this.shownEnd = new Float64Array(this.matchCount);
    this.shownLane = new Uint32Array(laneCount + 1);
    this.failBefore = new Uint32Array(this.matchCount + 1);
    this.infoBefore = new Uint32Array(this.matchCount + 1);
    let place = 0;
    for (let lane = 0; lane < laneCount; lane += 1) {
      for (let at = laneStart[lane]; at < laneStart[lane + 1]; at += 1) {
        const i = laneOrder[at];
        if (!wanted[i]) continue;
        this.shown[place] = i;
        this.shownStart[place] = this.start[i];
        this.shownEnd[place] = this.end[i];
        this.failBefore[place + 1] = this.failBefore[place] + (outcome[i] === 1 ? 1 : 0);
        this.infoBefore[place + 1] = this.infoBefore[place] + (outcome[i] === 2 ? 1 : 0);
        place += 1;
      }
      this.shownLane[lane + 1] = place;
    }
  }

  /** A test for one word of a search: `key:3`, `value:5`, `process:7`, or a bare word for any of them. */
  test(word) {
    const { head } = this;
    const [, field, sought] = /^(key|value|process|f|node|error|index):(.*)$/.exec(word) ?? [null, null, word];
    const among = (names, shift) => {
      const fitting = new Set();
      names.forEach((name, i) => {
        if (field ? name.toLowerCase() === sought : name.toLowerCase().includes(sought)) fitting.add(i + shift);
      });
      return fitting;
    };
    const same = (names, shift) => new Set(names.flatMap((name, i) => (name.toLowerCase() === sought ? [i + shift] : [])));
    const byKey = (keys) => (i) => keys.has(this.key[i]);
    switch (field) {
      case "key": {
        // The steps of a transaction name their keys themselves.
        const [own, step] = [byKey(same(head.keys, 1)), this.textTest(` ${sought}=`, false)];
        return (i) => own(i) || (!this.key[i] && step(i));
      }
      case "value": return this.textTest(sought, true);
      case "process": return (i) => String(this.process[i]) === sought;
      case "index": return (i) => String(this.index[i]) === sought;
      case "f": { const set = among(head.functions, 0); return (i) => set.has(this.function[i]); }
      case "node": { const set = among(head.nodes, 1); return (i) => set.has(this.node[i]); }
      case "error": { const set = among(head.errors, 1); return (i) => set.has(this.error[i]); }
      default: {
        const keys = same(head.keys, 1);
        const functions = among(head.functions, 0);
        const errors = among(head.errors, 1);
        const nodes = same(head.nodes, 1);
        const process = /^\d+$/.test(sought) ? Number(sought) : NEVER;
        const text = this.textTest(sought, false);
        return (i) => keys.has(this.key[i]) || this.process[i] === process || text(i)
          || functions.has(this.function[i]) || errors.has(this.error[i]) || nodes.has(this.node[i]);
      }
    }
  }

  /** Looks for `sought` in the bytes of the values: a whole value, or any part of one. */
  textTest(sought, whole) {
    const needle = new TextEncoder().encode(sought);
    const { text, textStart } = this;
    const startsAt = (at) => needle.every((byte, i) => lower(text[at + i]) === byte);
    return (i) => {
      const last = textStart[i + 1] - 1 - needle.length;
      if (whole) return last === textStart[i] && startsAt(last);
      for (let at = textStart[i]; at <= last; at += 1) {
        if (lower(text[at]) === needle[0] && startsAt(at)) return true;
      }
      return false;
    };
  }

  value(i) {
    return new TextDecoder().decode(this.text.subarray(this.textStart[i], this.textStart[i + 1] - 1));
  }

  /** `write 3 = 5`, as short as it gets. */
  label(i) {
    const key = this.key[i] ? ` ${this.head.keys[this.key[i] - 1]}` : "";
    const value = this.value(i);
    return `${this.head.functions[this.function[i]]}${key}${value === "" ? "" : ` = ${value}`}`;
  }

  describe(i) {
    const { head } = this;
    const answer = this.length[i] === NEVER
      ? "never completed"
      : `completed ${clock(this.start[i] + this.length[i], 1)} (${duration(this.length[i])})`;
    return [
      `#${this.index[i]} process ${this.process[i]}: ${this.label(i)}`,
      OUTCOMES[this.outcome[i]] + (this.node[i] ? ` on ${head.nodes[this.node[i] - 1]}` : ""),
      this.error[i] ? head.errors[this.error[i] - 1] : "",
      `invoked ${clock(this.start[i], 1)}`,
      answer,
    ].filter(Boolean).join(", ");
  }

  /** The shown operation of `lane` at `timeUs`, give or take `nearUs`. */
  at(lane, timeUs, nearUs) {
    const [low, high] = [this.shownLane[lane], this.shownLane[lane + 1]];
    const after = firstLate(low, high, (place) => this.shownStart[place] > timeUs + nearUs);
    let best = NEVER;
    let bestGap = Infinity;
    for (let place = after - 1; place >= Math.max(low, after - 8); place -= 1) {
      const i = this.shown[place];
      const gap = Math.max(this.start[i] - timeUs, timeUs - this.end[i], 0);
      if (gap < bestGap) [best, bestGap] = [i, gap];
    }
    return bestGap <= nearUs ? best : NEVER;
  }

  /** The next wanted operation after `i`, in the direction `step`; `i` itself when there is none. */
  neighbour(i, step) {
    for (let at = i + step; at >= 0 && at < this.count; at += step) {
      if (this.wanted[at]) return at;
    }
    return i;
  }
}

function lower(byte) {
  return byte >= 65 && byte <= 90 ? byte + 32 : byte;
}
