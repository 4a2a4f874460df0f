// Small images on canvases: what the network sees, with its couplings over it, and reconstructions.

// Colors as the style sheet has them, in light and in dark.
export function colors() {
  const style = getComputedStyle(document.documentElement);
  return ["--first", "--second"].map((name) => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    return [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  });
}

// An image (channel, row, column) from 0 to 1, every pixel of it a square of `enlarge` pixels; darker under an overlay.
export function show(canvas, image, [channels, rows, columns], enlarge = 1, brightness = 1) {
  const pixels = new ImageData(columns, rows);
  for (let at = 0; at < rows * columns; at++) {
    for (let color = 0; color < 3; color++) {
      const channel = channels === 3 ? color : 0;
      pixels.data[4 * at + color] = 255 * brightness * Math.min(Math.max(image[channel * rows * columns + at], 0), 1);
    }
    pixels.data[4 * at + 3] = 255;
  }
  put(canvas, pixels, enlarge);
}

// Gray images of one or two capsules, each in its color; where both are bright, the colors add up.
export function showInColors(canvas, images, [channels, rows, columns], enlarge = 1) {
  const pixels = new ImageData(columns, rows);
  const tints = images.length > 1 ? colors() : [[255, 255, 255]];
  for (let at = 0; at < rows * columns; at++) {
    for (let color = 0; color < 3; color++) {
      let sum = 0;
      images.forEach((image, number) => {
        const channel = channels === 3 ? color : 0;
        sum += tints[number][color] * Math.min(Math.max(image[channel * rows * columns + at], 0), 1);
      });
      pixels.data[4 * at + color] = sum;
    }
    pixels.data[4 * at + 3] = 255;
  }
  put(canvas, pixels, enlarge);
}

// Over an image: for each class to show, how much more than an even share of every position goes to it, where something
// is there. The strongest color is that of the largest share of all iterations.
export function overlay(canvas, prediction, iteration, shown, about) {
  const { rows, columns, left, right, top, bottom } = about.grid;
  const page = canvas.getContext("2d");
  const [wide, high] = [((right - left) * canvas.width) / columns, ((bottom - top) * canvas.height) / rows];
  const most = Math.max(...prediction.parts, 1e-9);
  const tints = colors();
  const classes = about.classes.length;
  const largest = Math.max(1.5 / classes, ...shown.map((number) => largestShare(prediction.shares, number, classes)));
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const place = row * columns + column;
      const there = Math.sqrt(prediction.parts[place] / most);
      const start = (iteration * rows * columns + place) * classes;
      shown.forEach((number, order) => {
        const share = prediction.shares[start + number];
        const [red, green, blue] = tints[order];
        const more = Math.max(0, (share - 1 / classes) / (largest - 1 / classes));
        page.fillStyle = `rgb(${red} ${green} ${blue} / ${(0.9 * more * there).toFixed(3)})`;
        const [x, y] = [left * canvas.width + column * wide, top * canvas.height + row * high];
        if (shown.length === 1) page.fillRect(x + 1, y + 1, wide - 2, high - 2);
        else page.fillRect(x + 1 + (order * (wide - 2)) / 2, y + 1, (wide - 2) / 2, high - 2);
      });
    }
  }
}

function largestShare(shares, number, classes) {
  let largest = 0;
  for (let at = number; at < shares.length; at += classes) largest = Math.max(largest, shares[at]);
  return largest;
}

function put(canvas, pixels, enlarge) {
  const small = Object.assign(document.createElement("canvas"), { width: pixels.width, height: pixels.height });
  small.getContext("2d").putImageData(pixels, 0, 0);
  [canvas.width, canvas.height] = [pixels.width * enlarge, pixels.height * enlarge];
  canvas.style.aspectRatio = `${pixels.width} / ${pixels.height}`;
  const page = canvas.getContext("2d");
  page.imageSmoothingEnabled = false;
  page.drawImage(small, 0, 0, canvas.width, canvas.height);
}
