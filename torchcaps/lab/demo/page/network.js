// The network and its decoder in the browser: pixels in, what the page shows out.
import * as ort from "./runtime/ort.wasm.bundle.min.mjs";

ort.env.wasm.numThreads = 1; // more need headers that a plain web host does not send
ort.env.wasm.wasmPaths = { wasm: new URL("./runtime/ort-wasm-simd-threaded.wasm", import.meta.url).href };

export class Network {
  // What model.json says of the network is `about`.
  static async load() {
    const about = await (await fetch("./model.json")).json();
    const network = new Network();
    network.about = about;
    network.session = await open("./model.onnx");
    network.decoder = about.decoder ? await open("./decoder.onnx") : null;
    return network;
  }

  // Pixels are (channel, row, column), as `prepare` returns them.
  async predict(pixels) {
    const found = await this.session.run({ inputs: new ort.Tensor("float32", pixels, [1, ...this.about.input]) });
    const logits = found.logits.data;
    return {
      presences: this.about.exclusive ? softmax(logits) : (found.presences?.data ?? logits.map(sigmoid)),
      logits,
      poses: found.poses?.data,
      shares: found.shares?.data, // (iteration, row, column, class)
      parts: found.parts?.data, // (row, column)
      iterations: found.shares ? found.shares.dims[1] : 0,
    };
  }

  // The image (channel, row, column) of one class capsule, given the poses of all.
  async decode(poses, chosen) {
    const { classes, pose } = this.about;
    const { image } = await this.decoder.run({
      poses: new ort.Tensor("float32", poses, [1, classes.length, pose]),
      chosen: new ort.Tensor("int64", BigInt64Array.of(BigInt(chosen)), [1]),
    });
    return image.data;
  }

  // The classes that the network decides on, the likeliest first; at most two are shown.
  decide({ presences }) {
    const order = [...presences.keys()].sort((one, other) => presences[other] - presences[one]);
    if (this.about.decision === "argmax") return order.slice(0, 1);
    if (this.about.decision === "two_most_active") return order.slice(0, 2);
    const there = order.filter((number) => presences[number] > 0.5).slice(0, 2);
    return there.length ? there : order.slice(0, 1);
  }
}

async function open(file) {
  const bytes = new Uint8Array(await (await fetch(file)).arrayBuffer());
  return ort.InferenceSession.create(bytes, { executionProviders: ["wasm"], logSeverityLevel: 3 });
}

const sigmoid = (logit) => 1 / (1 + Math.exp(-logit));

function softmax(logits) {
  const largest = Math.max(...logits);
  const powers = logits.map((logit) => Math.exp(logit - largest));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}
