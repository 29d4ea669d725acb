// Owns trying orders of the operations of a violation, one by one. Never allows one that the rules do not.

class Orders {
  constructor(section) {
    const { operations, situations, ends, end_count: endCount } = JSON.parse(section.querySelector("script").textContent);
    Object.assign(this, { section, operations, situations, ends, endCount });
    this.shownEnd = 0;
    this.path = this.pathTo(ends[0]);
    section.querySelector(".tools").hidden = false;
    for (const button of section.querySelectorAll("[data-do]")) {
      button.addEventListener("click", () => this[button.dataset.do]());
    }
    this.draw();
  }

  /** Situations from the first one to `end`, with the operation that led to each. */
  pathTo(end) {
    const path = [];
    for (let at = end; this.situations[at][3]; [at] = this.situations[at][3]) {
      path.unshift({ at, operation: this.situations[at][3][1] });
    }
    return [{ at: 0 }, ...path];
  }

  back() {
    if (this.path.length > 1) this.path.pop();
    this.draw();
  }

  restart() {
    this.path.length = 1;
    this.draw();
  }

  previous() { this.showEnd(this.shownEnd - 1); }

  following() { this.showEnd(this.shownEnd + 1); }

  showEnd(number) {
    this.shownEnd = (number + this.ends.length) % this.ends.length;
    this.path = this.pathTo(this.ends[this.shownEnd]);
    this.draw();
  }

  take(operation, at) {
    this.path.push({ at, operation });
    this.draw();
    // The list was replaced: whoever works with the keyboard goes on where something can be done.
    const next = this.section.querySelector(".choices button") ?? this.section.querySelector("[data-do=back]");
    next.focus();
  }

  draw() {
    const [state, next, refused] = this.situations[this.path.at(-1).at];
    const line = (...parts) => {
      const item = document.createElement("li");
      item.append(...parts);
      return item;
    };
    const part = (name, text, className) => {
      const made = document.createElement(name);
      made.textContent = text;
      if (className) made.className = className;
      return made;
    };
    const label = (operation) => this.operations[operation][0];
    this.section.querySelector(".steps").replaceChildren(...this.path.slice(1).map(({ at, operation }) => {
      const after = part("span", "then the value is ", "after");
      after.append(part("b", this.situations[at][0]));
      return line(`${label(operation)} `, after);
    }));
    const choices = next.map(([operation, at]) => {
      const button = part("button", label(operation));
      button.type = "button";
      button.addEventListener("click", () => this.take(operation, at));
      return line(button, this.operations[operation][1] ? " may come next" : " may come next, or never");
    });
    const impossible = refused.map((operation) => {
      const item = line(`✗ ${label(operation)} does not fit: the value is ${state}`);
      item.className = "refused";
      return item;
    });
    this.section.querySelector(".choices").replaceChildren(...choices, ...impossible);
    const required = this.operations.filter(([, isRequired]) => isRequired).length;
    const placed = this.path.slice(1).filter(({ operation }) => this.operations[operation][1]).length;
    const end = next.length ? "" : " No operation can come next: this order gets stuck.";
    this.section.querySelector(".told").textContent = `${placed} of ${required} acknowledged operations have a place; the value is ${state}.${end}`;
    this.section.querySelector("output").textContent = `${this.endCount} ${this.endCount === 1 ? "end" : "different ends"}, all stuck`;
    this.section.querySelector("[data-do=back]").disabled = this.path.length < 2;
  }
}

for (const section of document.querySelectorAll(".orders")) new Orders(section);
