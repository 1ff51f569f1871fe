baton_test(NAME kv_seals_test SOURCES seal_table_test.cc DEPS baton_kv)
