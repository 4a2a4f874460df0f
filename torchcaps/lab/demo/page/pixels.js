// From a canvas to what the network takes: the steps of the preprocessing that model.json names.

// A canvas of the network's image size, as gray or color from 0 to 1: (row, column, channel).
export function sample(canvas, [channels, rows, columns]) {
  const small = document.createElement("canvas");
  small.width = columns;
  small.height = rows;
  const source = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Float32Array(rows * columns * channels);
  const [down, across] = [canvas.height / rows, canvas.width / columns]; // whole numbers: a pad has whole cells
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const sums = [0, 0, 0];
      for (let y = row * down; y < (row + 1) * down; y++) {
        for (let x = column * across; x < (column + 1) * across; x++) {
          const at = 4 * (y * canvas.width + x);
          for (let color = 0; color < 3; color++) sums[color] += source[at + color];
        }
      }
      const [red, green, blue] = sums.map((sum) => sum / (255 * down * across));
      const gray = 0.299 * red + 0.587 * green + 0.114 * blue;
      const at = (row * columns + column) * channels;
      found.set(channels === 3 ? [red, green, blue] : new Array(channels).fill(gray), at);
    }
  }
  return found;
}

// The image as the network sees it: resized and cropped, (channel, row, column), still from 0 to 1.
export function crop(image, about) {
  const [channels, rows, columns] = about.image;
  let [height, width] = [rows, columns];
  let at = (channel, row, column) => image[(row * columns + column) * channels + channel];
  if (about.resize) {
    const source = at;
    const [down, across] = [rows / about.resize, columns / about.resize];
    [height, width] = [about.resize, about.resize];
    at = (channel, row, column) =>
      interpolate(source, channel, (row + 0.5) * down - 0.5, (column + 0.5) * across - 0.5, rows, columns);
  }
  const [, seenRows, seenColumns] = about.input;
  const [top, left] = [Math.floor((height - seenRows) / 2), Math.floor((width - seenColumns) / 2)];
  const seen = new Float32Array(channels * seenRows * seenColumns);
  for (let channel = 0; channel < channels; channel++) {
    for (let row = 0; row < seenRows; row++) {
      for (let column = 0; column < seenColumns; column++) {
        const [y, x] = [row + top, column + left];
        const inside = y >= 0 && y < height && x >= 0 && x < width;
        seen[(channel * seenRows + row) * seenColumns + column] = inside ? at(channel, y, x) : 0;
      }
    }
  }
  return seen;
}

// Standardized and normalized: what the network's first layer takes.
export function scale(seen, about) {
  const scaled = Float32Array.from(seen);
  if (about.standardize) {
    const mean = scaled.reduce((sum, value) => sum + value, 0) / scaled.length;
    const variance = scaled.reduce((sum, value) => sum + (value - mean) ** 2, 0) / scaled.length;
    const deviation = Math.max(Math.sqrt(variance), 1 / Math.sqrt(scaled.length));
    scaled.forEach((value, number) => { scaled[number] = (value - mean) / deviation; });
  }
  if (about.mean.length || about.std.length) {
    const each = scaled.length / about.input[0];
    scaled.forEach((value, number) => {
      const channel = Math.floor(number / each);
      scaled[number] = (value - (about.mean[channel] ?? 0)) / (about.std[channel] ?? 1);
    });
  }
  return scaled;
}

function interpolate(source, channel, y, x, rows, columns) {
  const [row, column] = [Math.floor(y), Math.floor(x)];
  let value = 0;
  for (const [dy, dx] of [[0, 0], [0, 1], [1, 0], [1, 1]]) {
    const weight = (dy ? y - row : 1 - y + row) * (dx ? x - column : 1 - x + column);
    const at = (place, size) => Math.min(Math.max(place, 0), size - 1);
    value += weight * source(channel, at(row + dy, rows), at(column + dx, columns));
  }
  return value;
}
