"use strict";
(function () {
  var root = document.documentElement;
  var button = document.getElementById("theme");
  var system = window.matchMedia("(prefers-color-scheme: dark)");
  function kept() {
    try { return localStorage.getItem("transload-report-theme"); } catch (refused) { return null; }
  }
  function keep(theme) {
    try { localStorage.setItem("transload-report-theme", theme); } catch (refused) { /* the choice holds for this visit */ }
  }
  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  }
  function label() {
    button.textContent = isDark() ? "Light colours" : "Dark colours";
  }
  if (kept() === "dark" || kept() === "light") { root.dataset.theme = kept(); }
  button.addEventListener("click", function () {
    root.dataset.theme = isDark() ? "light" : "dark";
    keep(root.dataset.theme);
    label();
  });
  system.addEventListener("change", label);
  label();
  button.hidden = false;
})();
