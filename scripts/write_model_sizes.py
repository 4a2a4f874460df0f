"""Count the parameters and multiply-adds of all models, for `torchcaps models`: python scripts/write_model_sizes.py"""

from torchcaps.files import write_json
from torchcaps.models import listing

if __name__ == "__main__":
    rows = map(listing.row, listing.list_models())
    write_json(listing.SIZES, {row.name: {"parameters": row.parameters, "macs": row.macs} for row in rows})
    print(f"{listing.SIZES} written")
