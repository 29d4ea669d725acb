const body = document.querySelector("#runs tbody");
const rows = body ? [...body.rows] : [];
const search = document.getElementById("search");
const verdict = document.getElementById("verdict");
const shown = document.getElementById("shown");

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    const fits = (!verdict.value || row.dataset.verdict === verdict.value)
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

if (body) {
  document.getElementById("controls").hidden = false;
  search.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
  document.querySelectorAll("#runs th button").forEach((button, column) => {
    button.addEventListener("click", () => sortBy(column, button.parentElement));
  });
  filter();
}
