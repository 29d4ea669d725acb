// Owns a stretch of time on a canvas: zoom, pan, keys, and drawing once per frame. Never knows what is drawn.

const GUTTER = 92;
const MARGIN = 10;

class TimeView {
  /** `paint(context, width, height)` draws the stretch `from` to `to`, in microseconds. */
  constructor(canvas, endUs, paint) {
    this.canvas = canvas;
    this.endUs = Math.max(endUs, 1);
    this.from = 0;
    this.to = this.endUs;
    this.paint = paint;
    this.width = 0;
    this.changed = () => {};
    this.hovered = () => {};
    this.clicked = () => {};
    this.keys = {};
    this.listen();
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  x(timeUs) {
    return GUTTER + (timeUs - this.from) * this.scale();
  }

  time(x) {
    return this.from + (x - GUTTER) / this.scale();
  }

  /** Pixels per microsecond. */
  scale() {
    return (this.width - GUTTER - MARGIN) / (this.to - this.from);
  }

  show(from, to) {
    const shortest = 20;
    const length = Math.min(Math.max(to - from, shortest), this.endUs);
    from = Math.min(Math.max((from + to - length) / 2, 0), this.endUs - length);
    if (from === this.from && from + length === this.to) return;
    this.from = from;
    this.to = from + length;
    this.changed();
    this.draw();
  }

  /** Shows a stretch with room around it. */
  showAround(from, to, leastUs = 20_000) {
    const room = Math.max((to - from) * 0.25, leastUs);
    this.show(from - room, to + room);
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) / factor, around + (this.to - around) / factor);
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    const kept = Math.min(Math.max(by, -this.from), this.endUs - this.to);
    this.show(this.from + kept, this.to + kept);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const ratio = devicePixelRatio || 1;
      const width = this.canvas.clientWidth;
      const height = this.canvas.clientHeight;
      if (width < GUTTER * 2 || !height) return;
      const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (this.canvas.width !== across) this.canvas.width = across;
      if (this.canvas.height !== down) this.canvas.height = down;
      this.width = width;
      const context = this.canvas.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.fillStyle = ink("card");
      context.fillRect(0, 0, width, height);
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      this.paint(context, width, height);
    });
  }

  listen() {
    const { canvas } = this;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      drag = { x: event.offsetX, from: this.from, to: this.to, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) return this.hovered(event.offsetX, event.offsetY);
      if (Math.abs(event.offsetX - drag.x) > 3) drag.moved = true;
      if (!drag.moved) return undefined;
      const by = (drag.x - event.offsetX) / this.scale();
      const kept = Math.min(Math.max(by, -drag.from), this.endUs - drag.to);
      this.show(drag.from + kept, drag.to + kept);
      return undefined;
    });
    const release = (event) => {
      if (drag && !drag.moved && event.type === "pointerup") this.clicked(event.offsetX, event.offsetY);
      drag = null;
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => this.hovered(-1, -1));
    canvas.addEventListener("dblclick", (event) => this.zoom(4, this.time(event.offsetX)));
    canvas.addEventListener("wheel", (event) => {
      // The page keeps scrolling unless the reader has turned to this picture.
      const meant = event.ctrlKey || event.metaKey || document.activeElement === canvas;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / 1000);
      else if (meant) this.zoom(Math.exp(-event.deltaY / 300), this.time(event.offsetX));
      else return;
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const usual = {
        ArrowLeft: () => this.pan(-0.15),
        ArrowRight: () => this.pan(0.15),
        PageUp: () => this.pan(-0.9),
        PageDown: () => this.pan(0.9),
        ArrowUp: () => this.zoom(1.5),
        ArrowDown: () => this.zoom(1 / 1.5),
        "+": () => this.zoom(1.5),
        "-": () => this.zoom(1 / 1.5),
        Home: () => this.pan(-1e9),
        End: () => this.pan(1e9),
        "0": () => this.show(0, this.endUs),
      };
      const action = this.keys[event.key] ?? usual[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
  }

  /** The time axis at `top`, with thin lines down to `bottom`. */
  paintAxis(context, top, bottom) {
    const step = roundStep((this.to - this.from) / Math.max(2, (this.width - GUTTER) / 110));
    context.textAlign = "center";
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      context.fillStyle = ink("line");
      context.fillRect(x, top + 16, 1, bottom - top - 16);
      context.fillStyle = ink("muted");
      context.fillText(clock(at, step), x, top + 8);
    }
  }
}

/** A step of 1, 2 or 5 times a power of ten that is at least `least`. */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999) ?? power * 10;
}

/** A moment in seconds, as exact as `stepUs` needs. */
function clock(timeUs, stepUs = 1) {
  const digits = Math.min(6, Math.max(0, 6 - Math.floor(Math.log10(Math.max(stepUs, 1)) + 1e-9)));
  return `${(timeUs / 1e6).toFixed(digits)} s`;
}

/** A length of time with a unit that fits. */
function duration(us) {
  if (us < 1000) return `${us} µs`;
  if (us < 1e6) return `${(us / 1000).toPrecision(3)} ms`;
  return `${(us / 1e6).toPrecision(3)} s`;
}

const inks = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => inks.clear());

/** The colour `--name` of the style sheet. */
function ink(name) {
  if (!inks.has(name)) {
    inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888888");
  }
  return inks.get(name);
}

/** A colour as one number of an image: alpha, blue, green, red. */
function pixel(colour) {
  let hex = colour.replace("#", "");
  if (hex.length === 3) hex = [...hex].map((digit) => digit + digit).join("");
  const number = Number.parseInt(hex, 16);
  return ((255 << 24) | ((number & 255) << 16) | (number & 0xff00) | (number >> 16)) >>> 0;
}

/** `text` cut so that it fits into `width` pixels; empty when nothing would be readable. */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const room = Math.floor(width / 7) - 1;
  return room < 2 ? "" : `${text.slice(0, room)}…`;
}
