list(APPEND kv_sources seal_table.cc)
