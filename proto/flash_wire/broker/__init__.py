"""The broker: order, admission and leases in Redis or Valkey. `client.Broker` is the way in, `connect.connect` makes
its client, `types` says what goes in and out, and each .lua file is one operation."""
