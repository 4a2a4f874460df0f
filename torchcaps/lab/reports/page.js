// Values under the pointer, for charts.
for (const chart of document.querySelectorAll(".chart")) {
  const svg = chart.querySelector("svg"), tip = chart.querySelector(".tip"), line = chart.querySelector(".at");
  const { across, curves } = JSON.parse(chart.dataset.values);
  const hide = () => { tip.hidden = true; line.style.display = "none"; };
  const show = (event) => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale;
    const near = (points) => points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
    const place = near(curves.flatMap((curve) => curve.points));
    line.setAttribute("x1", place[0]);
    line.setAttribute("x2", place[0]);
    line.style.display = "";
    const lines = curves.map((curve) => [curve.name, near(curve.points)]).map(([name, point]) =>
      name + ": " + point[2] + (point[1] === place[1] ? "" : " (" + across + " " + point[1] + ")"));
    tip.textContent = [across + " " + place[1], ...lines].join("\n");
    tip.hidden = false;
    const left = place[0] / scale + 12;
    tip.style.left = Math.max(0, left + tip.offsetWidth > box.width ? left - 24 - tip.offsetWidth : left) + "px";
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", hide);
  hide();
}
// One number of a capsule's pose at a time; the others go back to what they were.
for (const capsule of document.querySelectorAll(".capsule")) {
  const sheet = capsule.querySelector(".window img"), sliders = [...capsule.querySelectorAll("input")];
  const offsets = JSON.parse(capsule.dataset.offsets), size = capsule.dataset.size.split(" ");
  const middle = capsule.dataset.middle;
  const move = (row, column) => {
    sheet.style.transform = `translate(${-column * size[0]}px, ${-row * size[1]}px)`;
  };
  sliders.forEach((slider, row) => slider.addEventListener("input", () => {
    sliders.forEach((other) => {
      if (other !== slider) other.value = middle;
      other.nextElementSibling.textContent = offsets[other.value];
    });
    move(row, slider.value);
  }));
  move(0, middle);
}
