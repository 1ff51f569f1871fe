list(APPEND kv_sources geometry.cc seal_table.cc)
