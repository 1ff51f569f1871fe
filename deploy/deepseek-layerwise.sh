# DeepSeek-R1 in W8A8, 2P1D, layer by layer: decode takes a request first and allocates; prefill pushes each layer's KV
# while it computes the next.
. "$deploy/deepseek-pull.sh"
connector=MooncakeLayerwiseConnector
proxy_mode=layerwise
