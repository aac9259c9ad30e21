"""Sends one unary gRPC call with grpcio, and prints its status as JSON.

Arguments: address, path of the RPC, request in hexadecimal digits.
"""

import json
import sys

import grpc

address, path, request = sys.argv[1:4]
with grpc.insecure_channel(address) as channel:
    call = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
    try:
        response = call(bytes.fromhex(request), timeout=20)
        print(json.dumps({"code": "OK", "bytes": len(response)}))
    except grpc.RpcError as error:
        trailers = {key: value for key, value in error.trailing_metadata() or ()}
        details = trailers.get("grpc-status-details-bin", b"")
        print(
            json.dumps(
                {
                    "code": error.code().name,
                    "message": error.details(),
                    "details": details.decode("latin-1"),
                }
            )
        )
