import type { Http2ServerRequest } from 'node:http2';
import type { ContextValues } from '@connectrpc/connect';
import { universalRequestFromNodeRequest } from '@connectrpc/connect-node';
import type { UniversalServerRequest } from '@connectrpc/connect/protocol';
import type { AnyRequest, AnyResponse } from './http-types.js';

/**
 * Converts a request for the handlers of Connect, without its body. The signal is aborted when the
 * client has gone before the end of the response. After a complete response over HTTP/2 the signal
 * stays as it is: an abort without a reason makes an exception with a stack trace for every call.
 */
export function toUniversalRequest(
  request: AnyRequest,
  response: AnyResponse,
  contextValues: ContextValues,
): UniversalServerRequest {
  return universalRequestFromNodeRequest(
    'stream' in request ? withoutNormalClose(request, response) : request,
    response,
    // A body in place of an asynchronous generator over the request, which nobody would read.
    null,
    contextValues,
  );
}

/** Returns what Connect reads of a request, without the event `close` of a complete call. */
function withoutNormalClose(
  request: Http2ServerRequest,
  response: AnyResponse,
): Http2ServerRequest {
  const { httpVersion, method, url, headers, authority, socket, stream } = request;
  const view = {
    ...{ httpVersion, method, url, headers, authority, socket, stream },
    once: (event: string, listener: () => void) => {
      request.once(event, () => {
        if (stream.rstCode !== 0 || !response.writableEnded) listener();
      });
      return view;
    },
  };
  return view as unknown as Http2ServerRequest;
}
