"""Opens the catalog that the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import ConfigError
from lakeward_lake_paimon.catalogs import FolderCatalog
from lakeward_lake_paimon.rest_catalog import RestCatalog
from lakeward_lake_paimon.s3_storage import S3Storage
from lakeward_lake_paimon.stores import local_path, open_storage

if TYPE_CHECKING:
    from lakeward_lake_paimon.catalogs import Catalog
    from lakeward_lake_paimon.options import PaimonOptions


def open_catalog(options: PaimonOptions) -> Catalog:
    """Return the catalog; it is tried whether it can fence a commit.

    Raises:
        ConfigError: it cannot, or its address or keys do not fit.
        LakeError: the catalog does not answer, or refuses.
        StorageError: the warehouse cannot be written.
    """
    if options.metastore == "rest":
        return RestCatalog(options.uri, options.warehouse, options.properties, options.commit_timeout_s)
    if options.uri:
        key = "lake.uri"
        raise ConfigError(key, 'no such key with lake.metastore = "filesystem"', options.uri)
    storage = open_storage(options.warehouse, options.properties)
    if isinstance(storage, S3Storage):
        root = options.warehouse.rstrip("/")
        storage.check_conditions(root)
        return FolderCatalog(storage, root, options.properties)
    return FolderCatalog(storage, local_path(options.warehouse), options.properties)
