// Runs before the first paint, so that a chosen theme does not flash. A file of its own because the
// content security policy forbids inline scripts.
try {
  var theme = localStorage.getItem("holdfast.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is forbidden here; the system's preference holds.
}
