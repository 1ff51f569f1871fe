baton_test(NAME kv_blocks_test SOURCES block_hash_test.cc block_manager_test.cc block_manager_model_test.cc state_pool_test.cc
  DEPS baton_kv)
