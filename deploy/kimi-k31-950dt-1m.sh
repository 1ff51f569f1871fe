# The same for prompts and answers of up to 1 048 576 tokens together.
. "$deploy/kimi-k31-950dt.sh"
longest=1048576 tiny_longest=32768
