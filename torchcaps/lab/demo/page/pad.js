// The drawing pad: mouse, touch and pen, the keyboard, images that are dropped or opened.

const STROKE = 0.085; // of the side: about two pixels of 28
const BOX = 20 / 28; // of the side, that strokes take in MNIST
const LARGEST = 2.5; // times that small strokes are enlarged

export class Pad extends EventTarget {
  constructor(canvas, [channels, rows, columns]) {
    super();
    this.canvas = canvas;
    this.gray = channels !== 3;
    const cells = Math.max(2, Math.round(280 / Math.max(rows, columns)));
    [canvas.width, canvas.height] = [columns * cells, rows * cells];
    canvas.style.aspectRatio = `${columns} / ${rows}`;
    this.ink = newCanvas(canvas.width, canvas.height); // what was drawn, without the pen of the keyboard
    this.pen = { x: canvas.width / 2, y: canvas.height / 2, down: false, shown: false };
    this.clear();
    canvas.addEventListener("pointerdown", (event) => this.#start(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { this.last = null; });
    canvas.addEventListener("keydown", (event) => this.#press(event));
    canvas.addEventListener("blur", () => { this.pen.shown = false; this.#show(); });
  }

  clear(time = performance.now()) {
    const pencil = this.ink.getContext("2d", { willReadFrequently: true });
    pencil.fillStyle = "black";
    pencil.fillRect(0, 0, this.ink.width, this.ink.height);
    this.isStrokes = true;
    this.pen.down = false;
    this.#changed(time);
  }

  // Put an image on the pad: the middle of it that has the pad's proportion.
  place(image, width, height, time = performance.now()) {
    const { width: columns, height: rows } = this.ink;
    const part = Math.min(width / columns, height / rows);
    const [cutWidth, cutHeight] = [columns * part, rows * part];
    const pencil = this.ink.getContext("2d");
    pencil.fillStyle = "white"; // behind what is transparent
    pencil.fillRect(0, 0, columns, rows);
    pencil.imageSmoothingQuality = "high";
    const cut = [(width - cutWidth) / 2, (height - cutHeight) / 2, cutWidth, cutHeight];
    pencil.drawImage(image, ...cut, 0, 0, columns, rows);
    this.isStrokes = false;
    this.#changed(time);
  }

  invert() {
    const pencil = this.ink.getContext("2d");
    pencil.globalCompositeOperation = "difference";
    pencil.fillStyle = "white";
    pencil.fillRect(0, 0, this.ink.width, this.ink.height);
    pencil.globalCompositeOperation = "source-over";
    this.#changed(performance.now());
  }

  // How bright the border is, 0 to 1: paper is bright, and networks for digits want it dark.
  borderBrightness() {
    const { width, height } = this.ink;
    const { data } = this.ink.getContext("2d").getImageData(0, 0, width, height);
    let [sum, count] = [0, 0];
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x += y === 0 || y === height - 1 ? 1 : width - 1) {
        const at = 4 * (y * width + x);
        sum += (data[at] + data[at + 1] + data[at + 2]) / 765;
        count++;
      }
    }
    return sum / count;
  }

  // What was drawn, or the strokes alone in the middle and of the size of MNIST's.
  picture(fit) {
    const box = fit ? this.#box() : null;
    if (!box) return this.ink;
    const { width: side, height } = this.ink;
    const factor = Math.min((BOX * Math.min(side, height)) / Math.max(box.width, box.height), LARGEST);
    const fitted = newCanvas(side, height);
    const pencil = fitted.getContext("2d", { willReadFrequently: true });
    pencil.fillRect(0, 0, side, height);
    pencil.imageSmoothingQuality = "high";
    const [wide, high] = [box.width * factor, box.height * factor];
    const left = clamp(side / 2 - (box.x - box.left) * factor, 0, side - wide);
    const top = clamp(height / 2 - (box.y - box.top) * factor, 0, height - high);
    pencil.drawImage(this.ink, box.left, box.top, box.width, box.height, left, top, wide, high);
    return fitted;
  }

  // Where the strokes are, and their center of mass.
  #box() {
    const { width, height } = this.ink;
    const { data } = this.ink.getContext("2d").getImageData(0, 0, width, height);
    let [left, right, top, bottom, mass, x0, y0] = [width, -1, height, -1, 0, 0, 0];
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const value = data[4 * (y * width + x)];
        if (value < 40) continue;
        [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
        mass += value;
        x0 += value * x;
        y0 += value * y;
      }
    }
    if (right < 0) return null;
    return { left, top, width: right - left + 1, height: bottom - top + 1, x: x0 / mass, y: y0 / mass };
  }

  #start(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.focus({ preventScroll: true });
    this.pen.shown = false;
    this.last = this.#place(event);
    this.#line(this.last, this.last, event.timeStamp);
  }

  #move(event) {
    if (!this.last) return;
    const all = event.getCoalescedEvents?.() ?? [];
    for (const each of all.length ? all : [event]) {
      const next = this.#place(each);
      this.#line(this.last, next, event.timeStamp);
      this.last = next;
    }
  }

  #press(event) {
    const step = this.canvas.width / 40;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key === "Delete" || event.key === "Backspace") this.clear(event.timeStamp);
    else if (event.key === " ") {
      this.pen.down = !this.pen.down;
      if (this.pen.down) this.#line(this.pen, this.pen, event.timeStamp);
    } else if (moves[event.key]) {
      const [dx, dy] = moves[event.key];
      const next = { x: clamp(this.pen.x + dx, 0, this.canvas.width), y: clamp(this.pen.y + dy, 0, this.canvas.height) };
      if (this.pen.down) this.#line(this.pen, next, event.timeStamp);
      Object.assign(this.pen, next);
    } else return;
    event.preventDefault();
    this.pen.shown = true;
    this.#show();
  }

  #place(event) {
    const frame = this.canvas.getBoundingClientRect();
    const [right, down] = [this.canvas.width / frame.width, this.canvas.height / frame.height];
    return { x: (event.clientX - frame.left) * right, y: (event.clientY - frame.top) * down };
  }

  #line(from, to, time) {
    const pencil = this.ink.getContext("2d");
    Object.assign(pencil, { strokeStyle: "white", lineCap: "round", lineJoin: "round" });
    pencil.lineWidth = STROKE * Math.min(this.ink.width, this.ink.height);
    pencil.beginPath();
    pencil.moveTo(from.x, from.y);
    pencil.lineTo(to.x + 0.01, to.y);
    pencil.stroke();
    this.#changed(time);
  }

  #changed(time) {
    this.#show();
    this.dispatchEvent(new CustomEvent("change", { detail: time }));
  }

  #show() {
    const page = this.canvas.getContext("2d");
    page.drawImage(this.ink, 0, 0);
    if (!this.pen.shown) return;
    Object.assign(page, { strokeStyle: this.pen.down ? "#f2a154" : "#6aa8ff", lineWidth: 3 });
    page.beginPath();
    page.arc(this.pen.x, this.pen.y, this.canvas.width / 28, 0, 7);
    page.stroke();
  }
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), Math.max(low, high));

function newCanvas(width, height) {
  return Object.assign(document.createElement("canvas"), { width, height });
}
