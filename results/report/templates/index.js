const body = document.querySelector("#runs tbody");
const rows = body ? [...body.rows] : [];
const search = document.getElementById("search");
const verdict = document.getElementById("verdict");
const shown = document.getElementById("shown");

/** What a search looks through: what is shown, and what was too long to be. */
const texts = new Map(rows.map((row) => {
  const long = [...row.querySelectorAll("[data-all]")].map((cell) => cell.dataset.all);
  return [row, [row.textContent, ...long].join(" ").toLowerCase()];
}));

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const text = texts.get(row);
    const wanted = verdict.value;
    const fits = (!wanted || row.dataset.verdict === wanted || (wanted === "interrupted" && "interrupted" in row.dataset))
      && words.every((word) => text.includes(word));
    row.hidden = !fits;
    if (fits) count += 1;
  }
  shown.textContent = `${count} of ${rows.length}`;
}

function sortBy(column, header) {
  const falling = header.getAttribute("aria-sort") === "ascending";
  for (const other of document.querySelectorAll("#runs th")) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
  const numeric = header.dataset.numeric !== undefined;
  const order = (one, other) => numeric
    ? Number(key(one)) - Number(key(other))
    : key(one).localeCompare(key(other), undefined, { numeric: true });
  rows.sort((one, other) => (falling ? order(other, one) : order(one, other)));
  body.append(...rows);
}

/** Everything that the list knows of a run, as pairs of name and value. */
function facts(row) {
  const cells = [...row.cells].filter((cell) => !cell.querySelector(".pick"));
  const columns = cells.map((cell) => [cell.dataset.label, cell.dataset.all ?? cell.textContent.trim()]);
  const more = row.dataset.more.split("\n").map((line) => line.split("\t"));
  return new Map([...columns, ...more]);
}

/** Puts the two runs that were picked last side by side. */
let picked = [];
function pick(row, wanted) {
  picked = picked.filter((other) => other !== row);
  if (wanted) picked.push(row);
  for (const old of picked.splice(0, picked.length - 2)) old.querySelector(".pick").checked = false;
  const section = document.getElementById("comparison");
  section.hidden = picked.length < 2;
  if (section.hidden) return;
  const [one, other] = picked.map(facts);
  section.querySelectorAll("thead th").forEach((cell, i) => {
    cell.replaceChildren(...(i === 0 ? [] : [picked[i - 1].querySelector("a").cloneNode(true)]));
  });
  const names = [...new Set([...one.keys(), ...other.keys()])].filter((name) => name !== "Run");
  section.querySelector("tbody").replaceChildren(...names.map((name) => {
    const line = document.createElement("tr");
    const values = [one.get(name) ?? "–", other.get(name) ?? "–"];
    if (values[0] !== values[1]) line.className = "differs";
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = name;
    line.append(head, ...values.map((value) => {
      const cell = document.createElement("td");
      cell.textContent = value;
      return cell;
    }));
    return line;
  }));
  section.scrollIntoView({ block: "start" });
}

if (body) {
  for (const row of rows) {
    const box = row.querySelector(".pick");
    box.checked = false;
    box.addEventListener("change", () => pick(row, box.checked));
  }
  document.getElementById("controls").hidden = false;
  search.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
  document.querySelectorAll("#runs th button").forEach((button) => {
    const header = button.parentElement;
    button.addEventListener("click", () => sortBy(header.cellIndex, header));
  });
  filter();
}
