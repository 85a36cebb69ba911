"""Generated from proto/flash/v1 by tools/gen_proto.py. Do not edit."""
