// The page: draws what the network makes of the pad, again whenever the pad or a slider changes.
import { Network } from "./network.js";
import { Pad } from "./pad.js";
import { overlay, show, showInColors } from "./pictures.js";
import { crop, sample, scale } from "./pixels.js";

const $ = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
const ENLARGE = 10;

class Page {
  constructor(network) {
    this.network = network;
    this.about = network.about;
    this.pad = new Pad($("pad"), this.about.image);
    this.chosen = null; // the class that the reader picked; the likeliest if null
    this.moved = new Map(); // dimension -> number, where a slider was moved
    this.iteration = null; // the last if null
    describe(this.about);
    this.#makeClasses();
    this.#makeSliders();
    this.#makeExamples();
    this.#listen();
  }

  // Ask for a prediction of the pad; while one is running, the next one takes what is there then.
  async refresh(time) {
    this.since ??= time;
    if (this.running) return;
    this.running = true;
    await new Promise(requestAnimationFrame);
    while (this.since !== undefined) {
      const since = this.since;
      this.since = undefined;
      const image = sample(this.pad.picture($("fit").checked && this.pad.isStrokes), this.about.image);
      this.seen = crop(image, this.about);
      this.prediction = await this.network.predict(scale(this.seen, this.about));
      this.moved.clear();
      await this.draw();
      this.#measure(since);
    }
    this.running = false;
  }

  async draw() {
    const decided = this.network.decide(this.prediction);
    this.shown = this.chosen === null ? decided : [this.chosen, ...decided.filter((each) => each !== this.chosen)].slice(0, decided.length);
    this.#drawClasses(decided);
    this.drawSeen();
    this.#drawNumbers();
    await this.decode();
  }

  drawSeen() {
    show($("seen"), this.seen, this.about.input, ENLARGE, this.about.grid ? 0.55 : 1);
    if (!this.about.grid) return;
    const { iterations } = this.prediction;
    const at = Math.min(this.iteration ?? iterations, iterations);
    Object.assign($("iteration"), { max: iterations, value: at });
    $("iteration-text").textContent = `${at} of ${iterations}`;
    $("scrub").hidden = iterations < 2;
    overlay($("seen"), this.prediction, at - 1, this.shown, this.about);
    const names = this.shown.map((number) => this.about.classes[number]).join(" and ");
    $("seen-note").textContent = `Colored: parts of which ${names} gets more than an even share.`;
  }

  async decode() {
    if (!this.about.decoder) return;
    const images = [];
    for (const number of this.shown) images.push(await this.network.decode(this.#poses(), number));
    showInColors($("reconstruction"), images, this.about.input, ENLARGE);
    const names = this.shown.map((number, order) => this.about.classes[number] + (this.shown.length > 1 ? [" (blue)", " (orange)"][order] : ""));
    $("reconstruction-note").textContent = `The decoder's picture of ${names.join(" and ")}.`;
  }

  // The poses of all class capsules, with the numbers of the sliders in that of the first one shown.
  #poses() {
    const poses = Float32Array.from(this.prediction.poses);
    for (const [dimension, value] of this.moved) poses[this.shown[0] * this.about.pose + dimension] = value;
    return poses;
  }

  #measure(since) {
    const { duration } = performance.measure("pen to prediction", { start: since, end: performance.now() });
    $("latency").textContent = `${Math.round(duration)} ms from pen to prediction`;
    document.body.dataset.predictions = Number(document.body.dataset.predictions ?? 0) + 1;
  }

  #makeClasses() {
    const box = $("classes");
    box.classList.toggle("many", this.about.classes.length > 12);
    this.about.classes.forEach((name, number) => {
      const row = document.createElement("button");
      Object.assign(row, { type: "button", className: "class" });
      row.setAttribute("role", "radio");
      row.append(element("b", name), bar(), document.createElement("output"));
      row.addEventListener("click", () => this.#choose(number));
      box.append(row);
    });
    box.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const rows = [...box.children];
      const next = (rows.indexOf(document.activeElement) + step + rows.length) % rows.length;
      rows[next].focus();
      this.#choose(next);
    });
  }

  #choose(number) {
    this.chosen = number === this.chosen ? null : number;
    this.moved.clear();
    if (this.prediction) this.draw();
  }

  #drawClasses(decided) {
    [...$("classes").children].forEach((row, number) => {
      const presence = this.prediction.presences[number];
      row.querySelector("i").style.width = `${100 * presence}%`;
      row.querySelector("output").textContent = percent(presence);
      row.classList.toggle("first", this.shown[0] === number);
      row.classList.toggle("second", this.shown[1] === number);
      row.setAttribute("aria-checked", this.shown[0] === number);
      row.tabIndex = this.shown[0] === number ? 0 : -1;
    });
    $("classes").dataset.decided = decided.map((number) => this.about.classes[number]).join(" ");
  }

  #makeSliders() {
    if (!this.about.capsules) return;
    for (let dimension = 0; dimension < this.about.pose; dimension++) {
      const row = document.createElement("label");
      const slider = this.about.decoder ? Object.assign(document.createElement("input"), { type: "range", step: "any" }) : bar();
      row.append(element("span", dimension + 1), slider, document.createElement("output"));
      if (this.about.decoder) slider.addEventListener("input", () => this.#move(dimension, slider));
      $("sliders").append(row);
    }
    $("sliders").classList.toggle("numbers", !this.about.decoder);
  }

  async #move(dimension, slider) {
    this.moved.set(dimension, Number(slider.value));
    slider.parentElement.classList.add("moved");
    slider.parentElement.querySelector("output").textContent = signed(Number(slider.value));
    if (this.decoding) return; // the one that runs takes this value too
    this.decoding = true;
    await new Promise(requestAnimationFrame);
    await this.decode();
    this.decoding = false;
    document.body.dataset.decoded = Number(document.body.dataset.decoded ?? 0) + 1;
  }

  #drawNumbers() {
    if (!this.about.capsules) return;
    const { pose } = this.about;
    const own = this.prediction.poses.slice(this.shown[0] * pose, (this.shown[0] + 1) * pose);
    const reach = Math.max(0.25, ...own.map((value) => 1.3 * Math.abs(value)));
    $("pose-title").textContent = `The capsule of ${this.about.classes[this.shown[0]]}`;
    [...$("sliders").children].forEach((row, dimension) => {
      const value = own[dimension];
      row.classList.remove("moved");
      row.querySelector("output").textContent = signed(value);
      const slider = row.querySelector("input");
      if (slider) Object.assign(slider, { min: -reach, max: reach, value });
      else {
        const part = (50 * Math.abs(value)) / reach;
        Object.assign(row.querySelector("i").style, { width: `${part}%`, left: `${value < 0 ? 50 - part : 50}%` });
      }
    });
  }

  #makeExamples() {
    const [channels, rows, columns] = this.about.image;
    for (const { label, pixels } of this.about.examples) {
      const bytes = Uint8Array.from(atob(pixels), (letter) => letter.charCodeAt(0));
      const image = new ImageData(columns, rows);
      for (let at = 0; at < rows * columns; at++) {
        for (let color = 0; color < 3; color++) image.data[4 * at + color] = bytes[at * channels + (channels === 3 ? color : 0)];
        image.data[4 * at + 3] = 255;
      }
      const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
      canvas.getContext("2d").putImageData(image, 0, 0);
      const button = Object.assign(document.createElement("button"), { type: "button", title: label });
      button.setAttribute("aria-label", `Example: ${label}`);
      button.append(canvas);
      button.addEventListener("click", (event) => this.#place(canvas, columns, rows, event.timeStamp));
      $("examples").append(button);
    }
  }

  #place(image, width, height, time) {
    this.chosen = null;
    $("invert").checked = false;
    this.pad.place(image, width, height, time);
  }

  // An image file: paper is bright, and what was trained on bright strokes wants it dark.
  async #open(file) {
    if (!file) return;
    try {
      const image = await createImageBitmap(file);
      this.#place(image, image.width, image.height, performance.now());
    } catch {
      $("status").textContent = `${file.name} is no image that this browser can read; try a PNG or JPEG file.`;
      return;
    }
    if (this.pad.gray && this.about.centered && this.pad.borderBrightness() > 0.5) {
      $("invert").checked = true;
      this.pad.invert();
    }
  }

  #listen() {
    this.pad.addEventListener("change", (event) => this.refresh(event.detail));
    $("clear").addEventListener("click", (event) => {
      this.chosen = null;
      $("invert").checked = false;
      this.pad.clear(event.timeStamp);
    });
    $("fit").checked = this.about.centered;
    $("fit-label").hidden = !this.pad.gray;
    $("fit").addEventListener("change", (event) => this.refresh(event.timeStamp));
    $("invert").addEventListener("change", () => this.pad.invert());
    $("file").addEventListener("change", (event) => this.#open(event.target.files[0]));
    $("iteration").addEventListener("input", (event) => {
      this.iteration = Number(event.target.value);
      this.drawSeen();
    });
    $("play").addEventListener("click", () => this.#play());
    $("reset").addEventListener("click", () => {
      this.moved.clear();
      this.draw();
    });
    for (const kind of ["dragover", "dragleave", "drop"]) {
      document.addEventListener(kind, (event) => {
        event.preventDefault();
        document.body.classList.toggle("dropping", kind === "dragover");
        if (kind === "drop") this.#open(event.dataTransfer.files[0]);
      });
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // Step through the iterations, one each half second, until stopped.
  #play() {
    const playing = $("play").getAttribute("aria-pressed") === "true";
    $("play").setAttribute("aria-pressed", !playing);
    $("play").textContent = playing ? "▶" : "❚❚";
    if (playing) return clearInterval(this.timer);
    this.timer = setInterval(() => {
      this.iteration = ((this.iteration ?? this.prediction.iterations) % this.prediction.iterations) + 1;
      this.drawSeen();
    }, 600);
  }
}

// What the page says, in a sentence each: only of what this network has.
function describe(about) {
  const [channels, rows, columns] = about.image;
  const several = about.decision !== "argmax";
  $("draw-about").textContent = `${several ? "Draw two signs, one over the other," : "Draw"} with mouse, finger or pen, drop an image here, or take an example: the network sees ${rows}×${columns} pixels${channels === 3 ? " in color" : ""}.`;
  $("presence-about").textContent = !about.capsules
    ? "This network has no capsules: the bars are the probabilities of its classes."
    : about.exclusive
      ? "The probability of every class. Pick a class to look at its capsule."
      : "How sure each class capsule is that its class is there, each by itself. Pick a class to look at its capsule.";
  $("seen-title").textContent = about.grid ? "Which parts go to which class" : "What the network sees";
  $("scrub").hidden = !about.grid;
  if (about.grid) {
    const { rows: down, columns: across } = about.grid;
    const kind = about.couples ? `${about.routing} routing couples it to the class` : `it agrees with the others about the class`;
    const steps = about.couples ? " Routing begins with even shares; the slider goes through its iterations." : "";
    $("seen-about").textContent = `The image has ${down}×${across} positions with parts. A square is colored the more, the more ${kind}.${steps}`;
  } else {
    $("seen-about").textContent = "The image as the network gets it. It has no grid of parts, so there are no couplings to show.";
  }
  $("pose").hidden = !about.capsules;
  $("decoded").hidden = !about.decoder;
  $("pose-about").textContent = about.decoder
    ? `The decoder sees nothing but these ${about.pose} numbers of the capsule, and draws the picture from them. Move a slider to see what a number stands for.`
    : `This network has no trained decoder, so there is no picture: these are the ${about.pose} numbers of the capsule's pose.`;
  $("about").textContent = `Network: ${about.name}.`;
}

function element(kind, text) {
  return Object.assign(document.createElement(kind), { textContent: text });
}

function bar() {
  const outer = Object.assign(document.createElement("span"), { className: "bar" });
  outer.append(document.createElement("i"));
  return outer;
}

function signed(value) {
  return (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
}

try {
  $("status").textContent = "Loading the network …";
  const network = await Network.load();
  const page = new Page(network);
  await page.refresh(performance.now());
  $("status").textContent = "Draw a sign: its parts vote for classes, and you see where they go.";
  if (!network.about.capsules) $("status").textContent = "Draw, and see what the network says.";
  const first = $("examples").querySelector("button");
  first?.click();
  document.body.dataset.ready = "";
} catch (error) {
  $("status").textContent = `The network could not be loaded: ${error.message ?? error}`;
  throw error;
}
