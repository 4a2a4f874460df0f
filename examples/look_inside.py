"""See inside a trained network: which parts of an image its capsules used. Writes a page with all figures.

python examples/look_inside.py               # writes inside/index.html
"""

import argparse

import torch

import torchcaps as tc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="shipped", help="a run folder, a model file, or the model that ships")
    parser.add_argument("--data", default="mnist_sample", help="name of a dataset, or folder:PATH")
    parser.add_argument("--small", action="store_true", help="two images and one kind of figure")
    options = parser.parse_args()

    model = tc.load(options.model)
    examples = tc.data.load(options.data, "test")
    batch = examples.batch(torch.arange(2 if options.small else 64))
    images = model.preprocess(batch.image)
    with torch.no_grad():
        prediction = model(images)
    names = [model.class_names[number] for number in prediction.logits.argmax(-1).tolist()]
    print("predicted:", ", ".join(names[:8]))
    print("presence of the first image's classes:", [round(p, 2) for p in prediction.capsules.presence[0].tolist()])

    topics = ["reconstruction"] if options.small else ["couplings", "reconstruction", "perturbation", "iterations"]
    explained = tc.lab.explain(model, images, batch.label, model.class_names, topics=topics)
    for drawn in explained.figures:
        print(f"{drawn.name}: {drawn.caption}")
    if not options.small:
        print("written:", explained.write("inside"))


if __name__ == "__main__":
    main()
