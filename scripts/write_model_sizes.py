"""Count the parameters and multiply-adds of all models, for `torchcaps models`: python scripts/write_model_sizes.py"""

from torchcaps.files import write_json
from torchcaps.models import registry

if __name__ == "__main__":
    rows = map(registry.row, registry.list_models())
    write_json(registry.SIZES, {row.name: {"parameters": row.parameters, "macs": row.macs} for row in rows})
    print(f"{registry.SIZES} written")
