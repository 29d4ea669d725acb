// Owns unpacking of the data that the page carries. Never draws.

/** The head and the columns of the data block `id`; null when the page has none. */
async function unpack(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const text = element.textContent.trim();
  element.remove();
  const packed = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(text)
    : Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const raw = new Uint8Array(await new Response(stream).arrayBuffer());
  const headLength = new DataView(raw.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + headLength)));
  const columns = {};
  let at = 4 + headLength;
  for (const [name, length] of head.columns) {
    columns[name] = raw.subarray(at, at + length);
    at += length;
  }
  return { head, columns };
}

/** Reads the numbers of a column into `target`. */
function numbers(bytes, target) {
  let at = 0;
  for (let i = 0; i < target.length; i += 1) {
    let byte = bytes[at++];
    let value = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = bytes[at++];
      value += (byte & 127) * scale;
    }
    target[i] = value;
  }
  return target;
}

/** Reads a column of changes: each number is told by its distance to the one before. */
function changes(bytes, target) {
  numbers(bytes, target);
  let last = 0;
  for (let i = 0; i < target.length; i += 1) {
    const coded = target[i];
    last += coded % 2 ? -(coded + 1) / 2 : coded / 2;
    target[i] = last;
  }
  return target;
}

/** The first position between `low` and `high` at which `isLate` holds, else `high`. */
function firstLate(low, high, isLate) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isLate(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
