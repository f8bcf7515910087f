"""`cephfit lab`, `params`, `pools`, `restore`, `cloud`, `image`, `config`: clusters, clouds and settings."""
