"use strict";
// Timeline, keys and theme. All text from the trace reaches the page as textContent or canvas
// text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent).timeline;
  const canvas = document.getElementById("timeline");
  const tip = document.getElementById("tip");
  const context = canvas.getContext("2d");
  const LABEL = 18, ROW = 26, AXIS = 20;
  const KINDS = ["--D", "--N", "--S", "--C", "--K", "--L", "--profiler"];
  const lanes = data.lanes;
  let low = 0, high = data.length, selected = "", queued = false;

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const time = (us) => us < 1 ? `${Math.round(us * 1000)} ns` : us < 1000 ? `${us.toFixed(1)} µs`
    : us < 1e6 ? `${(us / 1000).toFixed(2)} ms` : `${(us / 1e6).toFixed(2)} s`;
  const height = () => AXIS + lanes.length * (LABEL + ROW) + 10;
  const top = (lane) => AXIS + lane * (LABEL + ROW) + LABEL;

  // The first event that may reach into view: starts are sorted, so search for the left edge and
  // step back over the longest event of the lane.
  for (const lane of lanes) lane.longest = lane.length.reduce((a, b) => Math.max(a, b), 0);
  function firstVisible(lane, from) {
    let a = 0, b = lane.start.length;
    const wanted = from - lane.longest;
    while (a < b) { const m = (a + b) >> 1; if (lane.start[m] < wanted) a = m + 1; else b = m; }
    return a;
  }

  function drawLane(lane, row, width, colors) {
    const scale = width / (high - low), y = top(row);
    // Events thinner than a pixel share a column: only its first is drawn, so a frame costs at
    // most one rectangle per pixel and kind, however many events there are.
    const filled = new Float64Array(KINDS.length).fill(-1);
    for (let i = firstVisible(lane, low); i < lane.start.length && lane.start[i] < high; i++) {
      const x = (lane.start[i] - low) * scale, w = lane.length[i] * scale, kind = lane.kind[i];
      if (x + w < filled[kind] || x + w < 0) continue;
      context.fillStyle = colors[kind];
      const left = Math.max(x, 0, filled[kind]), right = Math.min(Math.max(x + w, x + 0.7), width);
      if (right <= left) continue;
      context.fillRect(left, y, right - left, ROW - 6);
      filled[kind] = Math.ceil(right);
      if (w > 46) {
        context.save();
        context.beginPath(); context.rect(left, y, right - left, ROW - 6); context.clip();
        context.fillStyle = "#fff";
        context.fillText(data.names[lane.name[i]], left + 4, y + 14);
        context.restore();
      }
      if (w > 3) filled[kind] = x + w - 0.5;
    }
  }

  function draw() {
    queued = false;
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
    canvas.style.height = `${height()}px`;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height() * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height());
    context.font = "11px system-ui, sans-serif";
    const scale = width / (high - low), ink = color("--soft"), line = color("--line");
    data.steps.forEach((at, i) => {
      const x = (at - low) * scale;
      if (x < -80 || x > width) return;
      context.fillStyle = line; context.fillRect(x, 0, 1, height());
      const next = data.steps[i + 1];
      if (next === undefined) return;
      const room = (next - at) * scale - 8, label = `step ${i + 1}`, long = `${label} · ${time(next - at)}`;
      const text = context.measureText(long).width < room ? long : label;
      if (context.measureText(text).width > room) return;
      context.fillStyle = ink;
      context.fillText(text, Math.max(x, 0) + 4, 13);
    });
    const spans = data.spans[selected] || [];
    context.fillStyle = color("--accent") + "33";
    let edge = -1;
    for (let i = 0; i < spans.length; i += 2) {
      const x = Math.max((spans[i] - low) * scale, edge), end = (spans[i + 1] - low) * scale;
      if (end < 0 || x > width) continue;
      context.fillRect(x, AXIS, Math.max(end - x, 1), height());
      edge = Math.max(end, x + 1);
    }
    const colors = KINDS.map(color);
    lanes.forEach((lane, row) => {
      context.fillStyle = ink;
      context.fillText(lane.title, 4, top(row) - 5);
      drawLane(lane, row, width, colors);
    });
  }
  const later = () => { if (!queued) { queued = true; requestAnimationFrame(draw); } };

  function view(from, to) {
    const span = Math.min(Math.max(to - from, 0.5), data.length);
    low = Math.min(Math.max(from, 0), data.length - span); high = low + span;
    later();
  }
  const zoom = (factor, at) => view(at - (at - low) * factor, at + (high - at) * factor);
  const pan = (part) => view(low + (high - low) * part, high + (high - low) * part);
  const timeAt = (event) => {
    const box = canvas.getBoundingClientRect();
    return low + (event.clientX - box.left) / box.width * (high - low);
  };

  function hover(event) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const at = timeAt(event), slack = (high - low) / box.width * 1.5;
    const row = lanes.findIndex((_, i) => y >= top(i) && y < top(i) + ROW - 6);
    let found = -1;
    if (row >= 0) {
      const lane = lanes[row];
      for (let i = firstVisible(lane, at - slack); i < lane.start.length && lane.start[i] <= at + slack; i++)
        if (lane.start[i] + lane.length[i] >= at - slack) found = i;
    }
    if (found < 0) { tip.style.display = "none"; return; }
    const lane = lanes[row], place = data.names[lane.place[found]];
    tip.textContent = `${data.names[lane.name[found]]}\n${time(lane.length[found])} at ${time(lane.start[found])}`
      + (place ? `\n${place}` : "");
    tip.style.display = "block";
    tip.style.left = `${Math.min(x + 12, Math.max(0, box.width - 260))}px`;
    tip.style.top = `${y + 16}px`;
  }

  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    if (event.shiftKey) pan(Math.sign(event.deltaY) * 0.1);
    else zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, low, high }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) { hover(event); return; }
    const shift = (drag.x - event.clientX) / canvas.clientWidth * (drag.high - drag.low);
    view(drag.low + shift, drag.high + shift);
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("dblclick", () => view(0, data.length));

  const cards = [...document.querySelectorAll(".finding")];
  function select(card, scroll) {
    cards.forEach((other) => other.classList.toggle("selected", other === card));
    selected = card ? card.dataset.rule : "";
    if (card && scroll) { card.focus({ preventScroll: true }); card.scrollIntoView({ block: "nearest" }); }
    if (card) history.replaceState(null, "", `#${selected}`);
    later();
  }
  cards.forEach((card) => {
    card.addEventListener("click", () => select(card, false));
    card.addEventListener("focus", () => select(card, false));
  });
  const step = (by) => {
    if (!cards.length) return;
    const now = cards.findIndex((card) => card.dataset.rule === selected);
    select(cards[Math.min(Math.max(now + by, 0), cards.length - 1)], true);
  };

  function theme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    later();
  }
  document.getElementById("theme").addEventListener("click", theme);

  const KEYS = [["j, k", "next, previous finding"], ["Enter", "why a finding fired"],
    ["+, −", "zoom the timeline"], ["←, →", "move the timeline"], ["0", "whole timeline"],
    ["t", "light or dark"], ["?", "these keys"]];
  function help() {
    const box = document.createElement("dialog"), table = document.createElement("table");
    for (const [key, what] of KEYS) {
      const row = table.insertRow(), cap = document.createElement("kbd");
      cap.textContent = key; row.insertCell().append(cap); row.insertCell().textContent = what;
    }
    box.append(table); document.body.append(box);
    box.addEventListener("close", () => box.remove());
    box.addEventListener("click", () => box.close());
    box.showModal();
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const middle = (low + high) / 2;
    const actions = {
      j: () => step(1), k: () => step(-1), t: theme, "?": help, "0": () => view(0, data.length),
      "+": () => zoom(0.7, middle), "=": () => zoom(0.7, middle), "-": () => zoom(1.4, middle),
      ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15),
      Enter: () => {
        const more = document.activeElement.querySelector?.(":scope > details");
        if (more && document.activeElement.classList.contains("finding")) more.open = !more.open;
      },
    };
    if (!(event.key in actions)) return;
    actions[event.key]();
    if (event.key.startsWith("Arrow")) event.preventDefault();
  });

  window.addEventListener("resize", later);
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((part) => { part.open = true; });
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
  const wanted = cards.find((card) => `#${card.dataset.rule}` === location.hash);
  if (wanted) select(wanted, true);
  draw();
})();
