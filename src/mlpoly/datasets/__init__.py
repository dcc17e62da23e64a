"""Images: where they are looked for, how they are downloaded and read."""

from mlpoly.datasets.images import DATASETS, Images, load_images, read_idx
from mlpoly.datasets.sources import DownloadError, cache_dir, download, searched_folders

__all__ = [
    "DATASETS",
    "DownloadError",
    "Images",
    "cache_dir",
    "download",
    "load_images",
    "read_idx",
    "searched_folders",
]
