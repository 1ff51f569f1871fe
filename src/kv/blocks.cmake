list(APPEND kv_sources block_hash.cc block_pool.cc block_manager.cc state_pool.cc)
