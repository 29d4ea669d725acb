for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
// What is folded away is on paper, too.
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details.properties")) part.open = true;
});
